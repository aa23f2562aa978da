#pragma once

#include <cstdint>

/// The records of an artifact as they lie in the file; `docs/artifact.md` says what they mean.
/// They are read in place: each section starts at a multiple of 64, numbers are little-endian.

namespace heddle {

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "artifacts are read in place, which needs a little-endian machine"
#endif

constexpr uint8_t kMagic[8] = {0x89, 'H', 'D', 'L', '\r', '\n', 0x1A, '\n'};
constexpr uint32_t kFormatVersion = 3;

enum class Section : uint32_t {
  kStrings = 1,
  kModel,
  kProvenance,
  kSymbols,
  kSizes,
  kDims,
  kTensors,
  kWeights,
  kConstants,
  kPrograms,
  kKernels,
  kLaunches,
  kCodes,
  kBuffers,
  kInstructions,
  kTensorMaps,
  kArguments,
  kCode,
  kConstantData,
  kWeightData,
};
constexpr uint32_t kSectionCount = 20;

/// `"strings"`; the section names of the documentation.
const char* section_name(Section section);

struct HeaderRecord {
  uint8_t magic[8];
  uint32_t version;
  uint32_t sections;
  uint64_t file_size;
  uint64_t table_checksum;
  uint8_t zero[24];
  uint64_t checksum;
};

struct SectionRecord {
  uint32_t kind;
  uint32_t record_size;
  uint64_t offset;
  uint64_t size;
  uint64_t checksum;
};

/// Bytes of the strings section.
struct Str {
  uint32_t offset;
  uint32_t length;
};

/// Records of another section.
struct Range {
  uint32_t first;
  uint32_t count;
};

/// The number of a size.
using Slot = uint32_t;

struct ModelRecord {
  Str name;
  Range inputs;
  Range outputs;
  uint32_t symbols;
  uint32_t weights;
  uint32_t constants;
  uint32_t programs;
  uint8_t zero[24];
};

struct ProvenanceRecord {
  Str key;
  Str value;
};

struct SymbolRecord {
  Str name;
  int64_t minimum;
  int64_t maximum;
};

enum class SizeOp : uint32_t {
  kNumber = 1,
  kSymbol,
  kAdd,
  kSub,
  kMul,
  kFloorDiv,
  kCeilDiv,
  kMod,
  kMin,
  kMax,
};

struct SizeRecord {
  SizeOp op;
  uint32_t a;
  int64_t b;
};

struct TensorRecord {
  Str name;
  uint32_t dtype;
  Range shape;
  uint32_t zero;
};

constexpr uint32_t kWeightHasSha256 = 1;
constexpr uint32_t kWeightEmbedded = 2;
constexpr uint32_t kWeightSettled = 4;  // Its elements are in constants, as kernels read them.

struct WeightRecord {
  Str name;
  uint32_t dtype;
  Range shape;
  uint32_t flags;
  uint64_t offset;
  uint64_t size;
  uint8_t sha256[32];
};

struct ConstantRecord {
  uint64_t offset;
  uint64_t size;
};

constexpr uint32_t kProgramOverlaps = 1;  // Its main may start before what is in front has ended.

struct ProgramRecord {
  uint32_t target;  // a DeviceKind
  Range kernels;
  Range buffers;
  Range init;
  Range main;
  Slot init_arena;
  Slot main_arena;
  uint32_t flags;
  uint64_t state;
  uint8_t reserved[24];
};

constexpr uint32_t kKernelChecks = 1;

/// The most buffers, and the most dims, of one kernel: a call's arguments fit on the stack.
constexpr uint32_t kMaxArguments = 256;

/// The most architectures that one kernel has code for, and the most launches that it is.
constexpr uint32_t kMaxArchs = 64, kMaxLaunches = 64;

struct KernelRecord {
  Str name;
  Range codes;
  Range launches;
  uint32_t flags;
  uint32_t buffers;
  uint32_t dims;
  uint8_t zero[12];
};

constexpr uint32_t kLaunchOverlaps = 1;

/// The most blocks of a cluster that every device with clusters runs ("CUDA C++ Programming Guide",
/// thread block clusters).
constexpr uint32_t kMaxCluster = 8;

/// The most tensor maps of one launch: a kernel's parameters are 4 KiB.
constexpr uint32_t kMaxTensorMaps = 16;

/// How a kernel is started on the devices of the codes that name it.
struct LaunchRecord {
  uint32_t block[3];
  uint32_t shared;
  uint32_t cluster;
  uint32_t resident;
  uint32_t flags;
  uint32_t tensor_maps;
};

enum class CodeFormat : uint32_t { kImage = 1, kCubin, kPtx };

struct CodeRecord {
  CodeFormat format;
  Str arch;
  Str symbol;
  uint32_t entry;
  uint32_t alignment;
  uint32_t registers;
  uint32_t spills;
  uint32_t launch;  // relative to the kernel's first
  uint64_t offset;
  uint64_t size;
  uint8_t reserved[8];
};

enum class BufferKind : uint32_t {
  kInput = 1,
  kOutput,
  kWeight,
  kConstant,
  kState,
  kArena,
  kStatus,
  kCounters,
};

struct BufferRecord {
  BufferKind kind;
  uint32_t index;
  Slot offset;
  Slot size;
};

enum class Opcode : uint32_t { kDispatch = 1, kCopy };

struct InstructionRecord {
  Opcode opcode;
  uint32_t kernel;
  Range buffers;
  Range dims;
  Range grids;  // in dims: x, y, z for each launch of the kernel
  Range tensor_maps;
  Slot work;  // a copy: bytes
  Str label;
  uint32_t zero;
};

/// The most axes of a tensor map.
constexpr uint32_t kMaxMapRank = 5;

struct TensorMapRecord {
  uint32_t argument;  // relative to the instruction's first
  uint32_t item;      // bytes of an element
  Range shape;        // in dims, outermost first
  Range strides;      // in dims, bytes, of all axes but the last
  uint32_t box[kMaxMapRank];
  uint32_t swizzle;
};

static_assert(sizeof(HeaderRecord) == 64 && sizeof(SectionRecord) == 32);
static_assert(sizeof(ModelRecord) == 64 && sizeof(ProvenanceRecord) == 16);
static_assert(sizeof(SymbolRecord) == 24 && sizeof(SizeRecord) == 16);
static_assert(sizeof(TensorRecord) == 24 && sizeof(WeightRecord) == 72);
static_assert(sizeof(ConstantRecord) == 16 && sizeof(ProgramRecord) == 80);
static_assert(sizeof(KernelRecord) == 48 && sizeof(CodeRecord) == 64);
static_assert(sizeof(LaunchRecord) == 32 && sizeof(TensorMapRecord) == 48);
static_assert(sizeof(BufferRecord) == 16 && sizeof(InstructionRecord) == 56);

}  // namespace heddle
