#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "bindings.h"

namespace heddle::bindings {

/// The dtype of a format of the buffer protocol (Python's `struct` module; null: bytes), if it is
/// one of Heddle in native byte order.
std::optional<DType> dtype_from_format(const char* format, ptrdiff_t item_size);

/// The dtype of a `typestr` of NumPy's array interface (`"<f4"`), if it is one of Heddle.
std::optional<DType> dtype_from_typestr(const std::string& typestr);

/// The `typestr` of a dtype; empty for those that NumPy lacks: bfloat16 and the floats of 8 bits.
std::string typestr_of(DType dtype);

/// Refuses a masked array of NumPy: the format of its memory does not show its mask.
void refuse_masked(nb::handle array);

}  // namespace heddle::bindings
