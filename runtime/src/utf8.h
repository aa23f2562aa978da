#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

/// Whether `size` bytes are UTF-8 without NUL (RFC 3629: shortest forms, no surrogates).
bool is_utf8(const uint8_t* data, size_t size);

}  // namespace heddle
