#pragma once

#include <immintrin.h>

namespace heddle {

/// This thread computes as every thread does by default, to the end of the scope: rounds to
/// nearest, keeps numbers that have no normal form, traps nothing. A caller may have set another
/// mode, or loaded a library that did.
class DefaultFloatMode {
 public:
  DefaultFloatMode() : before_(_mm_getcsr()) {
    if ((before_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if ((before_ & ~kFlags) != kDefault) _mm_setcsr(before_);
  }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1F80, kFlags = 0x3F;

  const unsigned before_;
};

}  // namespace heddle
