#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <vector>

namespace heddle {

/// A view of values that somebody else owns: of a vector, an array, or the values of a call's
/// arguments (`execute({x, y})`), which live until the call is over.
template <class T>
class Span {
 public:
  constexpr Span() = default;
  constexpr Span(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr Span(std::initializer_list<T> values) : Span(values.begin(), values.size()) {}
  Span(const std::vector<T>& values) : Span(values.data(), values.size()) {}
  template <size_t count>
  constexpr Span(const std::array<T, count>& values) : Span(values.data(), count) {}
  template <size_t count>
  constexpr Span(const T (&values)[count]) : Span(values, count) {}

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
