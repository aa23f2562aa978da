#pragma once

#include <cstddef>
#include <vector>

namespace heddle {

/// A view of `size` values that somebody else owns.
template <class T>
class Span {
 public:
  constexpr Span() = default;
  constexpr Span(const T* data, size_t size) : data_(data), size_(size) {}
  Span(const std::vector<T>& values) : Span(values.data(), values.size()) {}

  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t index) const { return data_[index]; }
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }

  /// `count` values from `first` on; the caller has checked that they are inside.
  constexpr Span part(size_t first, size_t count) const { return {data_ + first, count}; }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace heddle
