#include "heddle/shape.h"

#include <algorithm>

#include "heddle/error.h"

namespace heddle {

Shape::Shape(const int64_t* sizes, size_t rank) : rank_(rank) {
  if (rank > kMaxRank) {
    throw Error(ErrorKind::kInput, "a tensor has at most " + std::to_string(kMaxRank) +
                                       " dimensions, got " + std::to_string(rank));
  }
  std::copy_n(sizes, rank, sizes_.begin());
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::optional<int64_t> Shape::bytes(DType dtype) const {
  if (std::any_of(begin(), end(), [](int64_t size) { return size < 0; })) return std::nullopt;
  if (std::find(begin(), end(), 0) != end()) return 0;  // whatever the others are
  int64_t total = static_cast<int64_t>(dtype_size(dtype));
  for (int64_t size : *this) {
    if (__builtin_mul_overflow(total, size, &total)) return std::nullopt;
  }
  return total;
}

std::string Shape::text() const {
  std::string text = "[";
  for (size_t axis = 0; axis < rank_; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(sizes_[axis]);
  }
  return text + "]";
}

}  // namespace heddle
