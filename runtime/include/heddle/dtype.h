#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace heddle {

/// Element types; the numbers are those of the artifact format.
enum class DType : uint32_t {
  kBool = 1,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kFloat8E4M3FN,
  kFloat8E5M2,
};

/// Whether a number read from a file is a dtype.
constexpr bool is_dtype(uint32_t number) { return number >= 1 && number <= 15; }

/// The dtype of the elements of a C++ array: `float` is float32, `int64_t` is int64.
template <class T>
constexpr DType dtype_of() {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "wanted a number of up to 64 bits");
  if constexpr (std::is_same_v<T, bool>) {
    return DType::kBool;
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;
  } else {
    constexpr DType kSigned[] = {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
    constexpr DType kUnsigned[] = {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
    constexpr int kLog = sizeof(T) == 8 ? 3 : sizeof(T) / 2;
    return std::is_signed_v<T> ? kSigned[kLog] : kUnsigned[kLog];
  }
}

/// Bytes of one element. Throws an input error for a number that is no dtype.
size_t dtype_size(DType dtype);

/// `"float32"`.
const char* dtype_name(DType dtype);

/// The dtype that is called `name` (`"float32"`), if any.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace heddle
