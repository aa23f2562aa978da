#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

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

/// Bytes of one element.
size_t dtype_size(DType dtype);

/// `"float32"`.
const char* dtype_name(DType dtype);

/// The dtype that is called `name` (`"float32"`), if any.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace heddle
