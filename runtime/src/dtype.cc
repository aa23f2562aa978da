#include "heddle/dtype.h"

#include <string>

#include "heddle/error.h"

namespace heddle {
namespace {

struct Row {
  const char* name;
  size_t size;
};

constexpr Row kRows[] = {{"bool", 1},    {"int8", 1},          {"int16", 2},      {"int32", 4},
                         {"int64", 8},   {"uint8", 1},         {"uint16", 2},     {"uint32", 4},
                         {"uint64", 8},  {"float16", 2},       {"bfloat16", 2},   {"float32", 4},
                         {"float64", 8}, {"float8_e4m3fn", 1}, {"float8_e5m2", 1}};

const Row& row(DType dtype) {
  const auto number = static_cast<uint32_t>(dtype);
  if (is_dtype(number)) return kRows[number - 1];
  throw Error(ErrorKind::kInput,
              "dtype: wanted a number from 1 to 15, got " + std::to_string(number));
}

}  // namespace

size_t dtype_size(DType dtype) { return row(dtype).size; }

const char* dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (uint32_t number = 1; is_dtype(number); ++number) {
    if (name == kRows[number - 1].name) return static_cast<DType>(number);
  }
  return std::nullopt;
}

}  // namespace heddle
