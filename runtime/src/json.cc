#include "json.h"

#include <cstdio>

#include "heddle/error.h"
#include "utf8.h"

namespace heddle {
namespace {

void append_utf8(uint32_t point, std::string* text) {
  auto follow = [&](int shift) { *text += static_cast<char>(0x80 | ((point >> shift) & 0x3F)); };
  if (point < 0x80) {
    *text += static_cast<char>(point);
  } else if (point < 0x800) {
    *text += static_cast<char>(0xC0 | (point >> 6));
    follow(0);
  } else if (point < 0x10000) {
    *text += static_cast<char>(0xE0 | (point >> 12));
    follow(6);
    follow(0);
  } else {
    *text += static_cast<char>(0xF0 | (point >> 18));
    follow(12);
    follow(6);
    follow(0);
  }
}

}  // namespace

void JsonReader::fail(const std::string& wanted) const {
  std::string got = "the end";
  if (position_ < text_.size()) {
    const char byte = text_[position_];
    char hex[8];
    std::snprintf(hex, sizeof hex, "0x%02x", static_cast<unsigned char>(byte));
    const bool printable = byte > ' ' && byte < '\x7f';
    got = printable ? std::string("'") + byte + "'" : std::string("byte ") + hex;
  }
  throw Error(ArtifactReason::kWeights, "header, position " + std::to_string(position_) +
                                            ": wanted " + wanted + ", got " + got);
}

void JsonReader::skip_space() {
  while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t' ||
                                      text_[position_] == '\n' || text_[position_] == '\r')) {
    ++position_;
  }
}

bool JsonReader::take(char token) {
  skip_space();
  if (position_ == text_.size() || text_[position_] != token) return false;
  ++position_;
  return true;
}

void JsonReader::expect(char token) {
  if (!take(token)) fail(std::string("'") + token + "'");
}

std::string JsonReader::string() {
  expect('"');
  std::string result;
  for (;;) {
    if (position_ == text_.size()) fail("the end of a string");
    char byte = text_[position_];
    if (static_cast<uint8_t>(byte) < 0x20) fail("a string without control characters");
    ++position_;
    if (byte == '"') break;
    if (byte == '\\') {
      escape(&result);
    } else {
      result += byte;
    }
  }
  if (!is_utf8(reinterpret_cast<const uint8_t*>(result.data()), result.size())) {
    fail("before it a string of UTF-8 without NUL");
  }
  return result;
}

void JsonReader::escape(std::string* result) {
  static constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
  if (position_ == text_.size()) fail("an escape");
  char name = text_[position_];
  if (name != 'u') {
    size_t index = kNames.find(name);
    if (index == std::string_view::npos) fail("an escape");
    *result += kValues[index];
    ++position_;
    return;
  }
  uint32_t point = hex4();
  if (point >= 0xD800 && point < 0xDC00) {
    if (position_ == text_.size() || text_[position_++] != '\\') fail("the second half of a pair");
    uint32_t low = hex4();
    if (low < 0xDC00 || low > 0xDFFF) fail("the second half of a pair");
    point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(point, result);  // a lone second half is no UTF-8, and is found there
}

uint32_t JsonReader::hex4() {
  if (position_ == text_.size() || text_[position_] != 'u') fail("'u' and four hex digits");
  ++position_;
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++position_) {
    char digit = position_ < text_.size() ? text_[position_] : '\0';
    size_t index = std::string_view("0123456789abcdefABCDEF").find(digit);
    if (index == std::string_view::npos) fail("four hex digits");
    value = value * 16 + static_cast<uint32_t>(index < 16 ? index : index - 6);
  }
  return value;
}

int64_t JsonReader::number() {
  skip_space();
  size_t start = position_;
  int64_t value = 0;
  for (; position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9';
       ++position_) {
    if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
        __builtin_add_overflow(value, int64_t{text_[position_] - '0'}, &value)) {
      fail("a number below 2^63");
    }
  }
  if (position_ == start || (text_[start] == '0' && position_ > start + 1)) {
    fail("a whole number");
  }
  return value;
}

void JsonReader::end() {
  skip_space();
  if (position_ != text_.size()) fail("the end");
}

}  // namespace heddle
