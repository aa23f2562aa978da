#include "heddle/checksum.h"

#include <algorithm>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

// XXH3 as specified in https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md

namespace heddle {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint32_t kPrimeOf32 = 0x9E3779B1;
constexpr uint64_t kMix1 = 0x165667919E3779F9;
constexpr uint64_t kMix2 = 0x9FB21C651E98DF25;

alignas(64) constexpr uint8_t kSecret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

constexpr size_t kStripesOfBlock = 16;
constexpr size_t kMostShort = 240;  // Longer inputs go through the lanes.

template <class T>
inline T read(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

inline uint64_t secret(size_t at) { return read<uint64_t>(kSecret + at); }

inline uint64_t rotate(uint64_t value, int bits) {
  return (value << bits) | (value >> (64 - bits));
}

__extension__ typedef unsigned __int128 Product;

/// Both halves of the product in one.
inline uint64_t folded_product(uint64_t a, uint64_t b) {
  const Product product = static_cast<Product>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t avalanche(uint64_t hash) {
  hash = (hash ^ (hash >> 37)) * kMix1;
  return hash ^ (hash >> 32);
}

inline uint64_t avalanche_of_few(uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

inline uint64_t mix(const uint8_t* data, size_t at) {
  return folded_product(read<uint64_t>(data) ^ secret(at),
                        read<uint64_t>(data + 8) ^ secret(at + 8));
}

/// Up to 16 bytes.
uint64_t of_few(const uint8_t* data, size_t size) {
  if (size > 8) {
    const uint64_t low = read<uint64_t>(data) ^ secret(24) ^ secret(32);
    const uint64_t high = read<uint64_t>(data + size - 8) ^ secret(40) ^ secret(48);
    return avalanche(size + __builtin_bswap64(low) + high + folded_product(low, high));
  }
  if (size >= 4) {
    const uint64_t first = read<uint32_t>(data), last = read<uint32_t>(data + size - 4);
    uint64_t hash = (last + (first << 32)) ^ secret(8) ^ secret(16);
    hash ^= rotate(hash, 49) ^ rotate(hash, 24);
    hash *= kMix2;
    hash ^= (hash >> 35) + size;
    hash *= kMix2;
    return hash ^ (hash >> 28);
  }
  if (size == 0) return avalanche_of_few(secret(56) ^ secret(64));
  const uint32_t bytes = static_cast<uint32_t>(data[0]) << 16 |
                         static_cast<uint32_t>(data[size >> 1]) << 24 | data[size - 1] |
                         static_cast<uint32_t>(size) << 8;
  return avalanche_of_few(bytes ^ (read<uint32_t>(kSecret) ^ read<uint32_t>(kSecret + 4)));
}

/// Up to 240 bytes.
uint64_t of_short(const uint8_t* data, size_t size) {
  if (size <= 16) return of_few(data, size);
  uint64_t hash = size * kPrime1;
  if (size <= 128) {
    for (size_t i = (size - 1) / 32 + 1; i-- > 0;) {
      hash += mix(data + 16 * i, 32 * i) + mix(data + size - 16 * (i + 1), 32 * i + 16);
    }
    return avalanche(hash);
  }
  for (size_t i = 0; i < 8; ++i) hash += mix(data + 16 * i, 16 * i);
  hash = avalanche(hash);
  for (size_t i = 8; i < size / 16; ++i) hash += mix(data + 16 * i, 16 * (i - 8) + 3);
  return avalanche(hash + mix(data + size - 16, 136 - 17));
}

/// Adds `count` stripes to the lanes, with the secret from `key` on.
using Accumulate = void (*)(uint64_t* lanes, const uint8_t* data, const uint8_t* key, size_t count);

void accumulate(uint64_t* lanes, const uint8_t* data, const uint8_t* key, size_t count) {
  for (; count > 0; --count, data += 64, key += 8) {
    for (size_t i = 0; i < 8; ++i) {
      const uint64_t value = read<uint64_t>(data + 8 * i);
      const uint64_t keyed = value ^ read<uint64_t>(key + 8 * i);
      lanes[i ^ 1] += value;
      lanes[i] += (keyed & 0xFFFFFFFF) * (keyed >> 32);
    }
  }
}

#ifdef __x86_64__

__attribute__((target("avx2"))) void accumulate_avx2(uint64_t* lanes, const uint8_t* data,
                                                     const uint8_t* key, size_t count) {
  auto* at = reinterpret_cast<__m256i*>(lanes);
  __m256i sums[2] = {_mm256_load_si256(at), _mm256_load_si256(at + 1)};
  for (; count > 0; --count, data += 64, key += 8) {
    for (size_t i = 0; i < 2; ++i) {
      const auto value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data) + i);
      const auto secret = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key) + i);
      const auto keyed = _mm256_xor_si256(value, secret);
      const auto product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
      const auto swapped = _mm256_shuffle_epi32(value, 0x4E);
      sums[i] = _mm256_add_epi64(sums[i], _mm256_add_epi64(product, swapped));
    }
  }
  for (size_t i = 0; i < 2; ++i) _mm256_store_si256(at + i, sums[i]);
}

#endif

Accumulate choose() {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) return accumulate_avx2;
#endif
  return accumulate;
}

// Chosen when it is asked for: a program may open an artifact before its `main`.
Accumulate fastest() {
  static const Accumulate chosen = choose();
  return chosen;
}

}  // namespace

void Checksum::stripes(const uint8_t* data, size_t count) {
  const Accumulate add = fastest();
  while (count > 0) {
    const size_t some = std::min(count, kStripesOfBlock - stripe_);
    add(lanes_, data, kSecret + 8 * stripe_, some);
    data += some * kStripe;
    count -= some;
    stripe_ += some;
    if (stripe_ < kStripesOfBlock) continue;
    stripe_ = 0;
    for (size_t i = 0; i < 8; ++i) {
      const uint64_t lane = lanes_[i];
      lanes_[i] = (lane ^ (lane >> 47) ^ secret(sizeof(kSecret) - kStripe + 8 * i)) * kPrimeOf32;
    }
  }
}

void Checksum::update(const void* data, size_t size) {
  if (size == 0) return;
  auto* bytes = static_cast<const uint8_t*>(data);
  uint8_t* held = bytes_ + kStripe;
  total_ += size;
  if (held_ + size <= kHeld) {
    std::memcpy(held + held_, bytes, size);
    held_ += size;
    return;
  }
  if (held_ > 0) {
    const size_t taken = kHeld - held_;
    std::memcpy(held + held_, bytes, taken);
    stripes(held, kHeld / kStripe);
    std::memcpy(bytes_, held + kHeld - kStripe, kStripe);
    bytes += taken;
    size -= taken;
  }
  // The last byte of all decides how the last stripe is added, so one is always held.
  const size_t count = (size - 1) / kStripe;
  if (count > 0) {
    stripes(bytes, count);
    std::memcpy(bytes_, bytes + (count - 1) * kStripe, kStripe);
  }
  held_ = size - count * kStripe;
  std::memcpy(held, bytes + count * kStripe, held_);
}

uint64_t Checksum::value() const {
  if (total_ <= kMostShort) return of_short(bytes_ + kStripe, held_);
  Checksum rest(*this);
  rest.stripes(bytes_ + kStripe, (held_ - 1) / kStripe);
  fastest()(rest.lanes_, bytes_ + held_, kSecret + sizeof(kSecret) - kStripe - 7, 1);
  uint64_t hash = total_ * kPrime1;
  for (size_t i = 0; i < 8; i += 2) {
    hash += folded_product(rest.lanes_[i] ^ secret(11 + 8 * i),
                           rest.lanes_[i + 1] ^ secret(19 + 8 * i));
  }
  return avalanche(hash);
}

uint64_t checksum(const void* data, size_t size) {
  Checksum sum;
  sum.update(data, size);
  return sum.value();
}

}  // namespace heddle
