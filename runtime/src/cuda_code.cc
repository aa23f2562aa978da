#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "heddle/cuda_program.h"

namespace heddle::cuda {
namespace {

/// `"sm_90a"` as 90 and exact. No capability is as high as `kMost`.
struct Arch {
  static constexpr int kMost = 4999;
  int capability = 0;
  bool exact = false;

  explicit Arch(std::string_view text) {
    const size_t digits = text.find('_') + 1;
    for (char letter : text.substr(digits)) {
      if (std::isdigit(static_cast<unsigned char>(letter)) != 0) {
        capability = std::min(capability * 10 + (letter - '0'), kMost);
      } else {
        exact = true;
      }
    }
  }

  bool runs_on(CodeFormat format, int device) const {
    if (exact) return capability == device;
    if (format == CodeFormat::kPtx) return capability <= device;
    return capability / 10 == device / 10 && capability <= device;
  }
};

}  // namespace

std::vector<const CodeRecord*> codes_for(const Artifact& artifact, const KernelRecord& kernel,
                                         int major, int minor) {
  std::vector<std::pair<int, const CodeRecord*>> ranked;
  for (const CodeRecord& code : artifact.codes(kernel)) {
    const Arch arch(artifact.text(code.arch));
    if (code.format == CodeFormat::kImage || !arch.runs_on(code.format, major * 10 + minor)) {
      continue;
    }
    // Any cubin is better than PTX; then the later architecture; then the one made for this GPU.
    ranked.emplace_back((code.format == CodeFormat::kCubin ? 10000 : 0) + arch.capability * 2 +
                            (arch.exact ? 1 : 0),
                        &code);
  }
  std::sort(ranked.rbegin(), ranked.rend());
  std::vector<const CodeRecord*> codes;
  for (const auto& [rank, code] : ranked) codes.push_back(code);
  return codes;
}

}  // namespace heddle::cuda
