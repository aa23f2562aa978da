#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "heddle/cpu.h"

namespace heddle {
namespace {

// State that the operating system saves: bits of XCR0.
constexpr uint64_t kAvxState = 0x6, kAvx512State = 0xE6, kAmxState = 0x60000;

enum Register { kEax, kEbx, kEcx, kEdx };

/// A feature's place in CPUID: Intel's manual, volume 2A, and AMD's, volume 3, appendix E.
struct Feature {
  const char* name;
  uint32_t leaf, subleaf;
  Register reg;
  int bit;
  uint64_t state;
};

constexpr Feature kV3[] = {
    {"sse3", 1, 0, kEcx, 0, 0},          {"ssse3", 1, 0, kEcx, 9, 0},
    {"fma", 1, 0, kEcx, 12, kAvxState},  {"cx16", 1, 0, kEcx, 13, 0},
    {"sse4.1", 1, 0, kEcx, 19, 0},       {"sse4.2", 1, 0, kEcx, 20, 0},
    {"movbe", 1, 0, kEcx, 22, 0},        {"popcnt", 1, 0, kEcx, 23, 0},
    {"xsave", 1, 0, kEcx, 26, 0},        {"avx", 1, 0, kEcx, 28, kAvxState},
    {"f16c", 1, 0, kEcx, 29, kAvxState}, {"bmi", 7, 0, kEbx, 3, 0},
    {"avx2", 7, 0, kEbx, 5, kAvxState},  {"bmi2", 7, 0, kEbx, 8, 0},
    {"sahf", 0x80000001, 0, kEcx, 0, 0}, {"lzcnt", 0x80000001, 0, kEcx, 5, 0},
};

constexpr Feature kV4[] = {
    {"avx512f", 7, 0, kEbx, 16, kAvx512State},  {"avx512dq", 7, 0, kEbx, 17, kAvx512State},
    {"avx512cd", 7, 0, kEbx, 28, kAvx512State}, {"avx512bw", 7, 0, kEbx, 30, kAvx512State},
    {"avx512vl", 7, 0, kEbx, 31, kAvx512State},
};

// Of LLVM's "cooperlake" and "sapphirerapids" those that a compiler uses unasked or that kernels
// ask for. The rest (enqcmd, uintr, tsxldtrk, ...) is for system software, and virtual machines
// often hide it.
constexpr Feature kCooperLake[] = {
    {"pclmul", 1, 0, kEcx, 1, 0},
    {"aes", 1, 0, kEcx, 25, 0},
    {"adx", 7, 0, kEbx, 19, 0},
    {"avx512vnni", 7, 0, kEcx, 11, kAvx512State},
    {"avx512bf16", 7, 1, kEax, 5, kAvx512State},
};

// vaes and vpclmulqdq are those of 256 bits; with avx512f there are longer ones.
constexpr Feature kSapphireRapids[] = {
    {"avx512ifma", 7, 0, kEbx, 21, kAvx512State},
    {"sha", 7, 0, kEbx, 29, 0},
    {"avx512vbmi", 7, 0, kEcx, 1, kAvx512State},
    {"avx512vbmi2", 7, 0, kEcx, 6, kAvx512State},
    {"gfni", 7, 0, kEcx, 8, 0},
    {"vaes", 7, 0, kEcx, 9, kAvxState},
    {"vpclmulqdq", 7, 0, kEcx, 10, kAvxState},
    {"avx512bitalg", 7, 0, kEcx, 12, kAvx512State},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, kAvx512State},
    {"amx-bf16", 7, 0, kEdx, 22, kAmxState},
    {"avx512fp16", 7, 0, kEdx, 23, kAvx512State},
    {"amx-tile", 7, 0, kEdx, 24, kAmxState},
    {"amx-int8", 7, 0, kEdx, 25, kAmxState},
    {"avxvnni", 7, 1, kEax, 4, kAvxState},
};

/// What CPUID says in one leaf.
struct Leaf {
  uint32_t leaf, subleaf;
  uint32_t registers[4];
};

/// The leaves of all features, each asked for once: in a virtual machine the host answers, which
/// takes many microseconds.
const std::vector<Leaf>& leaves() {
  static const std::vector<Leaf> kLeaves = [] {
    std::vector<Leaf> found{{1, 0, {}}, {7, 0, {}}, {7, 1, {}}, {0x80000001, 0, {}}};
    for (Leaf& row : found) {
      uint32_t* registers = row.registers;  // zeros stay where the CPU has no such leaf
      __get_cpuid_count(row.leaf, row.subleaf, &registers[0], &registers[1], &registers[2],
                        &registers[3]);
    }
    return found;
  }();
  return kLeaves;
}

bool has_bit(const Feature& feature) {
  for (const Leaf& row : leaves()) {
    if (row.leaf == feature.leaf && row.subleaf == feature.subleaf) {
      return (row.registers[feature.reg] >> feature.bit) & 1;
    }
  }
  return false;
}

uint64_t saved_state() {
  constexpr Feature kOsXsave{"osxsave", 1, 0, kEcx, 27, 0};
  if (!has_bit(kOsXsave)) return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

template <size_t count>
void check(const Feature (&features)[count], std::vector<std::string>* missing) {
  static const uint64_t kSaved = saved_state();
  for (const Feature& feature : features) {
    if (!has_bit(feature)) {
      missing->push_back(feature.name);
    } else if ((feature.state & ~kSaved) != 0) {
      missing->push_back(std::string(feature.name) + " (not enabled by the operating system)");
    }
  }
}

/// Linux lets a process use AMX tiles only after it has asked, once (arch_prctl(2),
/// ARCH_REQ_XCOMP_PERM for XTILEDATA).
bool amx_permitted() {
  static const bool kPermitted = ::syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return kPermitted;
}

}  // namespace

std::vector<std::string> missing_features(std::string_view arch) {
  const auto* level = std::find(std::begin(kCpuArchs), std::end(kCpuArchs), arch);
  if (level == std::end(kCpuArchs)) return {"a CPU that is called " + std::string(arch)};
  const auto levels = std::end(kCpuArchs) - level;  // each needs all below it
  std::vector<std::string> missing;
  check(kV3, &missing);
  if (levels > 1) check(kV4, &missing);
  if (levels > 2) check(kCooperLake, &missing);
  if (levels > 3) {
    check(kSapphireRapids, &missing);
    if (missing.empty() && !amx_permitted()) missing.push_back("permission to use amx");
  }
  return missing;
}

}  // namespace heddle
