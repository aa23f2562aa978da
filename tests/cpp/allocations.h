#pragma once

#include <cstddef>

namespace heddle::test {

/// Measures what `operator new` hands out while it lives, in the whole process.
class Allocations {
 public:
  Allocations();

  /// The most bytes that were in use at once.
  size_t peak() const;

  /// How often memory was asked for.
  size_t count() const;
};

}  // namespace heddle::test
