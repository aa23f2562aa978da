#include "heddle/sizes.h"

#include <algorithm>
#include <limits>

#include "heddle/error.h"

namespace heddle {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

[[noreturn]] void fail(const Artifact& artifact, const std::vector<int64_t>& symbols, Slot slot,
                       int64_t right) {
  std::string message = "size '" + artifact.size_text(slot) + "': wanted a 64-bit number, got ";
  SizeOp op = artifact.sizes()[slot].op;
  bool divides = op == SizeOp::kFloorDiv || op == SizeOp::kCeilDiv || op == SizeOp::kMod;
  message += divides && right == 0 ? "a division by zero" : "an overflow";
  const char* separator = " at ";
  for (size_t i = 0; i < symbols.size(); ++i, separator = ", ") {
    message += separator + std::string(artifact.text(artifact.symbols()[i].name)) + " = " +
               std::to_string(symbols[i]);
  }
  throw Error(ErrorKind::kInput, message);
}

}  // namespace

bool apply(SizeOp op, int64_t a, int64_t b, int64_t* result) {
  switch (op) {
    case SizeOp::kAdd:
      return !__builtin_add_overflow(a, b, result);
    case SizeOp::kSub:
      return !__builtin_sub_overflow(a, b, result);
    case SizeOp::kMul:
      return !__builtin_mul_overflow(a, b, result);
    case SizeOp::kMin:
      *result = std::min(a, b);
      return true;
    case SizeOp::kMax:
      *result = std::max(a, b);
      return true;
    default:
      break;
  }
  if (b == 0) return false;
  if (b == -1) {  // the one divisor that can overflow, and whose remainder is always zero
    if (op == SizeOp::kMod) return *result = 0, true;
    return *result = a == kLowest ? 0 : -a, a != kLowest;
  }
  int64_t quotient = a / b, rest = a % b;
  bool negative = (rest < 0) != (b < 0);
  if (op == SizeOp::kMod) {
    *result = rest != 0 && negative ? rest + b : rest;
  } else if (op == SizeOp::kFloorDiv) {
    *result = rest != 0 && negative ? quotient - 1 : quotient;
  } else {
    *result = rest != 0 && !negative ? quotient + 1 : quotient;
  }
  return true;
}

std::vector<int64_t> evaluate_sizes(const Artifact& artifact, const std::vector<int64_t>& symbols) {
  Span<SizeRecord> sizes = artifact.sizes();
  std::vector<int64_t> values(sizes.size());
  for (Slot slot = 0; slot < sizes.size(); ++slot) {
    const SizeRecord& size = sizes[slot];
    if (size.op == SizeOp::kNumber) {
      values[slot] = size.b;
    } else if (size.op == SizeOp::kSymbol) {
      values[slot] = symbols[size.a];
    } else {
      const int64_t right = values[static_cast<size_t>(size.b)];
      if (!apply(size.op, values[size.a], right, &values[slot])) {
        fail(artifact, symbols, slot, right);
      }
    }
  }
  return values;
}

}  // namespace heddle
