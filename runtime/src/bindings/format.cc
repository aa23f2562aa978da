#include "format.h"

namespace heddle::bindings {
namespace {

// In the order of DType.
constexpr const char* kTypestrs[] = {"|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4",
                                     "<u8", "<f2", "",    "<f4", "<f8", "",    ""};

// Integers by size: 1, 2, 4, 8 bytes.
std::optional<DType> integer(bool is_signed, ptrdiff_t size) {
  const DType signed_types[] = {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
  const DType unsigned_types[] = {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
  const DType* row = is_signed ? signed_types : unsigned_types;
  switch (size) {
    case 1:
      return row[0];
    case 2:
      return row[1];
    case 4:
      return row[2];
    case 8:
      return row[3];
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<DType> dtype_from_format(const char* format, ptrdiff_t item_size) {
  if (format == nullptr) return DType::kUInt8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  switch (*format) {
    case '?':
      return DType::kBool;
    case 'e':
      return DType::kFloat16;
    case 'f':
      return DType::kFloat32;
    case 'd':
      return DType::kFloat64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return integer(true, item_size);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return integer(false, item_size);
    default:
      return std::nullopt;
  }
}

std::optional<DType> dtype_from_typestr(const std::string& typestr) {
  for (uint32_t number = 1; is_dtype(number); ++number) {
    if (!typestr.empty() && kTypestrs[number - 1] == typestr) return static_cast<DType>(number);
  }
  return std::nullopt;
}

void refuse_masked(nb::handle array) {
  // NumPy's own arrays are of a class that is written in C, masked ones are not: a call is short.
  auto* type = reinterpret_cast<PyTypeObject*>(array.type().ptr());
  if ((PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) == 0) return;
  if (nb::cast<bool>(nb::module_::import_("heddle.runtime.masked").attr("is_masked")(array))) {
    throw Error(ErrorKind::kInput,
                "wanted an array without a mask, got a MaskedArray (fill it: array.filled(0))");
  }
}

std::string typestr_of(DType dtype) { return kTypestrs[static_cast<uint32_t>(dtype) - 1]; }

}  // namespace heddle::bindings
