#include "heddle/checksum.h"

#include <algorithm>
#include <cstring>

// XXH64 as specified in https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md

namespace heddle {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;
constexpr size_t kStripe = 32;

inline uint64_t rotate(uint64_t value, int bits) {
  return (value << bits) | (value >> (64 - bits));
}

template <class T>
inline uint64_t read(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

inline uint64_t mix(uint64_t lane, uint64_t input) {
  return rotate(lane + input * kPrime2, 31) * kPrime1;
}

}  // namespace

void Checksum::stripes(const uint8_t* data, size_t count) {
  uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];
  for (; count > 0; --count, data += kStripe) {
    a = mix(a, read<uint64_t>(data));
    b = mix(b, read<uint64_t>(data + 8));
    c = mix(c, read<uint64_t>(data + 16));
    d = mix(d, read<uint64_t>(data + 24));
  }
  lanes_[0] = a, lanes_[1] = b, lanes_[2] = c, lanes_[3] = d;
}

void Checksum::update(const void* data, size_t size) {
  if (size == 0) return;
  auto* bytes = static_cast<const uint8_t*>(data);
  size_t held = total_ % kStripe;
  total_ += size;
  if (held > 0) {
    size_t taken = std::min(kStripe - held, size);
    std::memcpy(rest_ + held, bytes, taken);
    if (held + taken < kStripe) return;
    stripes(rest_, 1);
    bytes += taken;
    size -= taken;
  }
  stripes(bytes, size / kStripe);
  std::memcpy(rest_, bytes + size / kStripe * kStripe, size % kStripe);
}

uint64_t Checksum::value() const {
  uint64_t hash = kPrime5;
  if (total_ >= kStripe) {
    hash =
        rotate(lanes_[0], 1) + rotate(lanes_[1], 7) + rotate(lanes_[2], 12) + rotate(lanes_[3], 18);
    for (uint64_t lane : lanes_) hash = (hash ^ mix(0, lane)) * kPrime1 + kPrime4;
  }
  hash += total_;
  const uint8_t* data = rest_;
  size_t size = total_ % kStripe;
  for (; size >= 8; size -= 8, data += 8) {
    hash = rotate(hash ^ mix(0, read<uint64_t>(data)), 27) * kPrime1 + kPrime4;
  }
  if (size >= 4) {
    hash = rotate(hash ^ read<uint32_t>(data) * kPrime1, 23) * kPrime2 + kPrime3;
    data += 4;
    size -= 4;
  }
  for (; size > 0; --size, ++data) hash = rotate(hash ^ *data * kPrime5, 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

uint64_t checksum(const void* data, size_t size) {
  Checksum sum;
  sum.update(data, size);
  return sum.value();
}

}  // namespace heddle
