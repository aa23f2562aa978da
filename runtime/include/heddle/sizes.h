#pragma once

#include <cstdint>
#include <vector>

#include "heddle/artifact.h"

namespace heddle {

/// `a op b` for the operations from `kAdd` on; division rounds as Python's does. False where the
/// result does not fit 64 bits or `b` is a zero divisor.
bool apply(SizeOp op, int64_t a, int64_t b, int64_t* result);

/// Every size of the artifact, given the value of each symbol. Throws an input error that names a
/// size which cannot be computed, and the symbols' values.
std::vector<int64_t> evaluate_sizes(const Artifact& artifact, const std::vector<int64_t>& symbols);

}  // namespace heddle
