#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

/// XXH64 with seed 0, as the public xxHash specification defines it, over bytes that come in parts.
class Checksum {
 public:
  void update(const void* data, size_t size);
  uint64_t value() const;

 private:
  void stripes(const uint8_t* data, size_t count);

  uint64_t lanes_[4] = {0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579};
  uint8_t rest_[32] = {};
  uint64_t total_ = 0;
};

/// The XXH64 of `size` bytes at `data`.
uint64_t checksum(const void* data, size_t size);

}  // namespace heddle
