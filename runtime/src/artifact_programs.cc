#include "artifact_reader.h"
#include "heddle/device.h"

namespace heddle {
namespace {

constexpr uint64_t kLargestState = uint64_t{1} << 47;
constexpr uint64_t kStatusBytes = 32;
constexpr uint64_t kCounterBytes = 1 << 16;

bool is(const ProgramRecord& program, DeviceKind kind) {
  return program.target == static_cast<uint32_t>(kind);
}

}  // namespace

void Verifier::programs() const {
  codes();
  Span<ProgramRecord> rows = artifact_.programs();
  for (size_t i = 0; i < rows.size(); ++i) {
    uint32_t target = rows[i].target;
    expect(is(rows[i], DeviceKind::kCpu) || is(rows[i], DeviceKind::kCuda),
           {Section::kPrograms, i, "target"}, "1 or 2", target);
    expect(i == 0 || target > rows[i - 1].target, {Section::kPrograms, i, "target"},
           "one program for each, in ascending order", target);
    program(i);
  }
}

void Verifier::codes() const {
  Span<CodeRecord> rows = artifact_.records<CodeRecord>(Section::kCodes);
  uint64_t end = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const CodeRecord& row = rows[i];
    auto field = [i](const char* name) { return Field{Section::kCodes, i, name}; };
    uint32_t format = static_cast<uint32_t>(row.format);
    expect(format >= 1 && format <= 3, field("format"), "1 to 3", format);
    expect_text(row.arch, field("arch"));
    expect_text(row.symbol, field("symbol"));
    expect_data(row.offset, row.size, Section::kCode, &end, field("data"));
    expect_below(row.entry, row.size, field("entry"));
    bool power = row.alignment != 0 && (row.alignment & (row.alignment - 1)) == 0;
    expect(power && row.alignment <= 4096, field("alignment"), "a power of two up to 4096",
           row.alignment);
    if (row.format == CodeFormat::kPtx) {
      uint8_t last = artifact_.code(row)[row.size - 1];
      expect(last == 0, field("last byte"), "NUL at the end of PTX", last);
    }
    expect_zero(row.reserved, field("zero"));
  }
}

void Verifier::program(size_t number) const {
  const ProgramRecord& row = artifact_.programs()[number];
  auto field = [number](const char* name) { return Field{Section::kPrograms, number, name}; };
  expect_range(row.kernels, Section::kKernels, field("kernels"));
  expect_range(row.buffers, Section::kBuffers, field("buffers"));
  expect_range(row.init, Section::kInstructions, field("init"));
  expect_range(row.main, Section::kInstructions, field("main"));
  expect_number(row.init_arena, field("init arena"));
  expect_below(row.main_arena, count(Section::kSizes), field("main arena"));
  expect(row.state < kLargestState, field("state"), "less than 2^47 bytes", row.state);
  expect(row.flags <= kProgramOverlaps, field("flags"), "bit 1 alone", row.flags);
  expect_zero(row.reserved, field("zero"));
  kernels(row);
  buffers(row);
  instructions(row, row.init, true);
  instructions(row, row.main, false);
}

void Verifier::kernels(const ProgramRecord& program) const {
  Span<KernelRecord> rows = artifact_.kernels(program);
  uint64_t end = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const KernelRecord& row = rows[i];
    auto field = [&](const char* name) {
      return Field{Section::kKernels, program.kernels.first + i, name};
    };
    expect_text(row.name, field("name"));
    expect_range(row.codes, Section::kCodes, field("codes"));
    expect_range(row.launches, Section::kLaunches, field("launches"));
    expect(row.codes.first >= end, field("codes"), "codes of its own, in order", row.codes.first);
    end = uint64_t{row.codes.first} + row.codes.count;
    expect(row.codes.count <= kMaxArchs, field("codes"), "at most 64", row.codes.count);
    for (const CodeRecord& code : artifact_.codes(row)) {
      expect((code.format == CodeFormat::kImage) == is(program, DeviceKind::kCpu), field("codes"),
             "images on a CPU, cubins and PTX on CUDA", static_cast<uint32_t>(code.format));
      expect(code.launch < row.launches.count, field("codes"), "a launch of the kernel",
             code.launch);
    }
    expect(row.flags <= kKernelChecks, field("flags"), "bit 1 alone", row.flags);
    expect(row.launches.count > 0 && row.launches.count <= kMaxLaunches, field("launches"),
           "1 to 64", row.launches.count);
    launches(row);
    expect(row.buffers <= kMaxArguments, field("buffers"), "at most 256", row.buffers);
    expect(row.dims <= kMaxArguments, field("dims"), "at most 256", row.dims);
    expect_zero(row.zero, field("zero"));
  }
}

void Verifier::launches(const KernelRecord& kernel) const {
  Span<LaunchRecord> rows = artifact_.launches(kernel);
  for (size_t i = 0; i < rows.size(); ++i) {
    const LaunchRecord& row = rows[i];
    auto field = [&](const char* name) {
      return Field{Section::kLaunches, kernel.launches.first + i, name};
    };
    for (uint32_t size : row.block) expect(size > 0, field("block"), "1 or more", size);
    expect(row.cluster > 0 && row.cluster <= kMaxCluster, field("cluster"), "1 to 8", row.cluster);
    expect(row.flags <= kLaunchOverlaps, field("flags"), "bit 1 alone", row.flags);
    expect(row.tensor_maps <= kMaxTensorMaps, field("tensor maps"), "at most 16", row.tensor_maps);
  }
}

void Verifier::buffers(const ProgramRecord& program) const {
  Span<BufferRecord> rows = artifact_.buffers(program);
  for (size_t i = 0; i < rows.size(); ++i) {
    const BufferRecord& row = rows[i];
    auto field = [&](const char* name) {
      return Field{Section::kBuffers, program.buffers.first + i, name};
    };
    uint32_t kind = static_cast<uint32_t>(row.kind);
    expect(kind >= 1 && kind <= 8, field("kind"), "1 to 8", kind);
    expect_below(row.offset, count(Section::kSizes), field("offset"));
    expect_below(row.size, count(Section::kSizes), field("size"));
    placed(program, row, program.buffers.first + i);
  }
}

void Verifier::placed(const ProgramRecord& program, const BufferRecord& buffer,
                      size_t record) const {
  auto field = [record](const char* name) { return Field{Section::kBuffers, record, name}; };
  auto expect_static = [&](uint64_t limit) {
    expect_number(buffer.size, field("size"));
    int64_t size = artifact_.sizes()[buffer.size].b;
    expect(size >= 0 && static_cast<uint64_t>(size) <= limit, field("size"),
           "0 or more bytes, inside what it names", size);
  };
  uint64_t indices = 1;
  switch (buffer.kind) {
    case BufferKind::kInput:
      indices = artifact_.inputs().size();
      break;
    case BufferKind::kOutput:
      indices = artifact_.outputs().size();
      break;
    case BufferKind::kWeight:
      indices = artifact_.weights().size();
      break;
    case BufferKind::kConstant:
      indices = artifact_.constants().size();
      break;
    default:
      break;
  }
  expect_below(buffer.index, indices, field("index"));
  if (buffer.kind == BufferKind::kWeight) {
    const WeightRecord& weight = artifact_.weights()[buffer.index];
    expect(!(weight.flags & kWeightSettled), field("index"), "a weight that is not settled",
           buffer.index);
    expect_static(weight.size);
  }
  if (buffer.kind == BufferKind::kConstant) expect_static(artifact_.constants()[buffer.index].size);
  if (buffer.kind == BufferKind::kStatus) expect_static(kStatusBytes);
  if (buffer.kind == BufferKind::kCounters) expect_static(kCounterBytes);
  if (buffer.kind == BufferKind::kArena) return;
  expect_number(buffer.offset, field("offset"));
  const int64_t offset = artifact_.sizes()[buffer.offset].b;
  if (buffer.kind == BufferKind::kState) {
    const auto start = static_cast<uint64_t>(offset);  // far outside where it is negative
    expect(start % 64 == 0 && start <= program.state, field("offset"),
           "a multiple of 64 inside the state", offset);
    expect_static(program.state - start);
  } else {
    expect(offset == 0, field("offset"), "zero, for it is neither state nor arena", offset);
  }
}

void Verifier::instructions(const ProgramRecord& program, Range range, bool init) const {
  Span<InstructionRecord> rows = artifact_.instructions(range);
  uint64_t all_buffers = 0, all_dims = 0, all_maps = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const InstructionRecord& row = rows[i];
    auto field = [&](const char* name) {
      return Field{Section::kInstructions, range.first + i, name};
    };
    uint32_t opcode = static_cast<uint32_t>(row.opcode);
    expect(opcode == 1 || opcode == 2, field("opcode"), "1 or 2", opcode);
    uint32_t buffers = 2, dims = 0, grids = 0, maps = 0;
    if (row.opcode == Opcode::kDispatch) {
      expect_below(row.kernel, program.kernels.count, field("kernel"));
      const KernelRecord& kernel = artifact_.kernels(program)[row.kernel];
      buffers = kernel.buffers;
      dims = kernel.dims;
      grids = 3 * kernel.launches.count;
      for (const LaunchRecord& launch : artifact_.launches(kernel)) maps += launch.tensor_maps;
    } else {
      expect(row.kernel == 0, field("kernel"), "zero, for it is a copy", row.kernel);
    }
    auto expect_count = [&](Range found, uint32_t wanted, Section target, const char* name) {
      if (found.count != wanted) {
        fail(field(name), std::to_string(wanted), std::to_string(found.count));
      }
      expect_range(found, target, field(name));
    };
    expect_count(row.buffers, buffers, Section::kArguments, "buffers");
    expect_count(row.dims, dims, Section::kDims, "dims");
    expect_count(row.grids, grids, Section::kDims, "grids");
    expect_count(row.tensor_maps, maps, Section::kTensorMaps, "tensor maps");
    // A plan copies them all: where they were shared, it could be far larger than the file.
    auto expect_own = [&](uint64_t* all, uint64_t more, Section target, const char* name) {
      *all += more;
      expect(*all <= count(target), field(name), "records of its own", *all);
    };
    expect_own(&all_buffers, buffers, Section::kArguments, "buffers");
    expect_own(&all_dims, uint64_t{dims} + grids, Section::kDims, "dims and grids");
    expect_own(&all_maps, maps, Section::kTensorMaps, "tensor maps");
    expect_text(row.label, field("label"));
    expect_below(row.work, count(Section::kSizes), field("work"));
    expect(row.zero == 0, field("zero"), "zero", row.zero);
    if (init) {
      expect_number(row.work, field("work of init"));
      for (Slot slot : artifact_.dims(row.grids)) expect_number(slot, field("grids of init"));
      for (Slot slot : artifact_.dims(row.dims)) expect_number(slot, field("dims of init"));
    }
    arguments(program, row, range.first + i, init);
    tensor_maps(row, init);
  }
}

void Verifier::tensor_maps(const InstructionRecord& instruction, bool init) const {
  Span<TensorMapRecord> rows = artifact_.tensor_maps(instruction);
  for (size_t i = 0; i < rows.size(); ++i) {
    const TensorMapRecord& row = rows[i];
    auto field = [&](const char* name) {
      return Field{Section::kTensorMaps, instruction.tensor_maps.first + i, name};
    };
    const uint32_t rank = row.shape.count;
    expect_below(row.argument, instruction.buffers.count, field("argument"));
    expect(row.item == 1 || row.item == 2 || row.item == 4 || row.item == 8, field("item"),
           "1, 2, 4 or 8 bytes", row.item);
    expect(rank >= 1 && rank <= kMaxMapRank, field("shape"), "1 to 5 axes", rank);
    expect(row.strides.count == rank - 1, field("strides"), "all axes but the last",
           row.strides.count);
    for (Range range : {row.shape, row.strides}) {
      expect_range(range, Section::kDims, field("shape or strides"));
      if (!init) continue;
      for (Slot slot : artifact_.dims(range)) expect_number(slot, field("shape of init"));
    }
    for (uint32_t axis = 0; axis < kMaxMapRank; ++axis) {
      const uint32_t size = row.box[axis];
      expect(axis < rank ? size >= 1 && size <= 256 : size == 0, field("box"),
             "1 to 256 along each axis, then zeros", size);
    }
    const uint32_t line = row.box[rank - 1] * row.item;
    expect(line % 16 == 0 && (row.swizzle == 0 || line <= row.swizzle), field("box"),
           "lines of whole 16 bytes within the swizzle", line);
    expect(row.swizzle == 0 || row.swizzle == 32 || row.swizzle == 64 || row.swizzle == 128,
           field("swizzle"), "0, 32, 64 or 128 bytes", row.swizzle);
  }
}

void Verifier::arguments(const ProgramRecord& program, const InstructionRecord& instruction,
                         size_t record, bool init) const {
  Field field{Section::kInstructions, record, "buffers"};
  Span<BufferRecord> buffers = artifact_.buffers(program);
  Span<uint32_t> arguments = artifact_.arguments(instruction);
  for (uint32_t argument : arguments) {
    expect_below(argument, buffers.size(), field);
    const BufferRecord& buffer = buffers[argument];
    if (!init) continue;
    expect(buffer.kind != BufferKind::kInput && buffer.kind != BufferKind::kOutput, field,
           "no input or output in init", argument);
    if (buffer.kind == BufferKind::kArena) {
      expect_number(buffer.offset, field);
      expect_number(buffer.size, field);
    }
  }
  if (instruction.opcode == Opcode::kCopy) {
    BufferKind target = buffers[arguments[1]].kind;
    bool writable = target == BufferKind::kOutput || target == BufferKind::kArena ||
                    (init && target == BufferKind::kState);
    expect(writable, field, "a copy into an output, the arena or, in init, the state",
           arguments[1]);
  }
}

}  // namespace heddle
