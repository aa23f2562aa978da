#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "heddle/dtype.h"

namespace heddle {

/// The most dimensions that a tensor may have.
constexpr size_t kMaxRank = 16;

/// The sizes of a dense row-major tensor, held in place: shapes cost no allocation.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(sizes.begin(), sizes.size()) {}

  /// Throws an input error when `rank` is above `kMaxRank`.
  Shape(const int64_t* sizes, size_t rank);

  size_t rank() const { return rank_; }
  const int64_t* data() const { return sizes_.data(); }
  int64_t operator[](size_t axis) const { return sizes_[axis]; }
  int64_t& operator[](size_t axis) { return sizes_[axis]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }

  bool operator==(const Shape& other) const;
  bool operator!=(const Shape& other) const { return !(*this == other); }

  /// Bytes of a tensor of this shape; nothing where that is negative or does not fit 63 bits.
  std::optional<int64_t> bytes(DType dtype) const;

  /// `"[2, 384]"`.
  std::string text() const;

 private:
  std::array<int64_t, kMaxRank> sizes_;
  size_t rank_ = 0;
};

}  // namespace heddle
