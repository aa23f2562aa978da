#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

/// XXH3 of 64 bits with seed 0, as the public xxHash specification defines it, over bytes that come
/// in parts.
class Checksum {
 public:
  void update(const void* data, size_t size);
  uint64_t value() const;

 private:
  static constexpr size_t kStripe = 64;
  static constexpr size_t kHeld = 4 * kStripe;

  void stripes(const uint8_t* data, size_t count);

  alignas(64) uint64_t lanes_[8] = {0xC2B2AE3D,         0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F,
                                    0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x85EBCA77,
                                    0x27D4EB2F165667C5, 0x9E3779B1};
  size_t stripe_ = 0;  // of a block
  // The last stripe that went into the lanes, then bytes that have not, 1 at least after the first.
  uint8_t bytes_[kStripe + kHeld] = {};
  size_t held_ = 0;
  uint64_t total_ = 0;
};

/// The XXH3 of `size` bytes at `data`.
uint64_t checksum(const void* data, size_t size);

}  // namespace heddle
