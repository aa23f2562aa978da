#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

/// Reads JSON (RFC 8259) from left to right, without a tree; the depth is the caller's own. Every
/// function throws an artifact error, `kWeights`, with the position where the text is wrong.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  /// Takes `token` (one character of structure); false where something else comes.
  bool take(char token);
  void expect(char token);

  std::string string();

  /// A whole number from 0 to 2^63 - 1.
  int64_t number();

  /// Refuses anything but white space up to the end.
  void end();

 private:
  [[noreturn]] void fail(const std::string& wanted) const;
  void skip_space();
  uint32_t hex4();
  void escape(std::string* result);

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace heddle
