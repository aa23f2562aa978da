#include "utf8.h"

namespace heddle {

bool is_utf8(const uint8_t* data, size_t size) {
  const uint8_t* end = data + size;
  while (data < end) {
    uint8_t lead = *data++;
    if (lead == 0) return false;
    if (lead < 0x80) continue;
    int follow = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || end - data < follow) return false;
    // The second byte decides what the lead alone leaves open.
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (*data < low || *data > high) return false;
    for (++data; --follow > 0; ++data) {
      if ((*data & 0xC0) != 0x80) return false;
    }
  }
  return true;
}

}  // namespace heddle
