#include "heddle/artifact.h"

namespace heddle {
namespace {

// Sizes share their parts, so that their text may be far longer than their records.
constexpr size_t kLongest = 200;
constexpr int kDeepest = 16;

void append(const Artifact& artifact, Slot slot, int depth, std::string* text) {
  static constexpr const char* kSigns[] = {" + ", " - ", " * ", " // ", " ceildiv ", " % "};
  const SizeRecord& size = artifact.sizes()[slot];
  if (depth == kDeepest || text->size() > kLongest) {
    *text += "...";
  } else if (size.op == SizeOp::kNumber) {
    *text += std::to_string(size.b);
  } else if (size.op == SizeOp::kSymbol) {
    *text += artifact.text(artifact.symbols()[size.a].name);
  } else {
    bool call = size.op >= SizeOp::kMin;
    const char* sign = call ? ", " : kSigns[static_cast<uint32_t>(size.op) - 3];
    *text += call ? (size.op == SizeOp::kMin ? "min(" : "max(") : depth > 0 ? "(" : "";
    append(artifact, size.a, depth + 1, text);
    *text += sign;
    append(artifact, static_cast<Slot>(size.b), depth + 1, text);
    *text += call || depth > 0 ? ")" : "";
  }
}

}  // namespace

std::string Artifact::size_text(Slot slot) const {
  std::string text;
  append(*this, slot, 0, &text);
  return text;
}

std::string Artifact::shape_text(Range range) const {
  std::string text = "[";
  for (Slot slot : dims(range)) {
    if (text.size() > 1) text += ", ";
    text += size_text(slot);
  }
  return text + "]";
}

}  // namespace heddle
