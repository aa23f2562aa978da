// Long because each rule of the format is broken here once.
#include "support.h"

using namespace heddle;
using test::caught;
using test::parse;
using test::Patch;

namespace {

/// The message for the tiny artifact after `change`, its checksums made right again.
std::string refused(const std::function<void(Patch&)>& change) {
  Patch patch;
  change(patch);
  Error error = caught([&] { parse(patch.seal()); });
  CHECK(error.reason() == ArtifactReason::kMalformed);
  std::string text = error.what();
  REQUIRE(text.rfind("<memory>: ", 0) == 0);
  return text.substr(10);
}

/// The same for a change of one record.
template <class T>
std::string refused(Section section, size_t record, const std::function<void(T&)>& change) {
  return refused([&](Patch& patch) { change(patch.records<T>(section)[record]); });
}

constexpr uint32_t kFar = 1000000;

}  // namespace

TEST_CASE("rules: header and table") {
  CHECK(refused([](Patch& patch) { patch.header().sections = 17; }) ==
        "header: sections: wanted 20, got 17");
  CHECK(refused([](Patch& patch) { patch.header().zero[3] = 1; }) ==
        "header: zero: wanted 0, got 1");
  CHECK(refused([](Patch& patch) { patch.row(Section::kModel).kind = 3; }) ==
        "section model: kind: wanted 2, got 3");
  CHECK(refused([](Patch& patch) { patch.row(Section::kSizes).record_size = 8; }) ==
        "section sizes: record size: wanted 16, got 8");
  CHECK(refused([](Patch& patch) { patch.row(Section::kStrings).offset += 64; }) ==
        "section strings: offset: wanted 704, got 768");
  CHECK(refused([](Patch& patch) {
          patch.row(Section::kStrings).size = kFar;
        }).rfind("section strings: bytes up to the file's end: wanted ", 0) == 0);
  CHECK(refused([](Patch& patch) { patch.row(Section::kProvenance).size -= 1; }) ==
        "section provenance: bytes beyond whole records: wanted 0, got 15");
  CHECK(refused([](Patch& patch) {
          patch.records<char>(Section::kStrings)[patch.row(Section::kStrings).size] = 1;
        }) == "section model: byte of the gap before it: wanted 0, got 1");
  CHECK(refused([](Patch& patch) {
          patch.row(Section::kWeightData).size -= 1;
        }).rfind("file: end of the last section: wanted ", 0) == 0);
}

TEST_CASE("rules: a table that is cut off, with a header that agrees") {
  Patch patch;
  patch.header().file_size = 100;
  patch.bytes().resize(700);
  patch.seal();
  patch.bytes().resize(100);
  Error error = caught([&] { parse(patch.bytes()); });
  CHECK(error.reason() == ArtifactReason::kTruncated);
  CHECK(std::string(error.what()) ==
        "<memory>: section table: bytes: wanted 704, got 100 (the file is damaged: copy or compile "
        "it again)");
}

TEST_CASE("rules: strings and model") {
  CHECK(refused([](Patch& patch) { *patch.records<uint8_t>(Section::kStrings) = 0xFF; }) ==
        "section strings: wanted UTF-8 without NUL, got other bytes");
  CHECK(refused<ModelRecord>(Section::kModel, 0, [](auto& row) {
          row.name = {kFar, 2};
        }).find("section model, record 0, name: wanted text inside the ") == 0);
  CHECK(refused([](Patch& patch) {
          std::memcpy(patch.records<char>(Section::kStrings), "\xC3\xA9", 2);
          patch.records<ModelRecord>(Section::kModel)->name = {1, 1};
        }) ==
        "section model, record 0, name: wanted text that starts and ends between characters, "
        "got 1");
  CHECK(refused([](Patch& patch) {
          std::memcpy(patch.records<char>(Section::kStrings), "\xC3\xA9", 2);
          patch.records<ModelRecord>(Section::kModel)->name = {0, 1};
        }) ==
        "section model, record 0, name: wanted text that starts and ends between characters, "
        "got 0");
  CHECK(refused([](Patch& patch) {
          auto start = patch.bytes().begin() +
                       static_cast<std::ptrdiff_t>(patch.row(Section::kModel).offset);
          patch.bytes().erase(start, start + sizeof(ModelRecord));
          patch.header().file_size -= sizeof(ModelRecord);
          patch.row(Section::kModel).size = 0;
          for (uint32_t kind = 3; kind <= kSectionCount; ++kind) {
            patch.row(static_cast<Section>(kind)).offset -= sizeof(ModelRecord);
          }
        }) == "section model, record 0, records: wanted 1, got 0");
  CHECK(refused<ModelRecord>(Section::kModel, 0, [](auto& row) { row.inputs.count = 9; }) ==
        "section model, record 0, inputs: wanted records inside the 5 of tensors, got a range that "
        "ends at 9");
  CHECK(refused<ModelRecord>(Section::kModel, 0, [](auto& row) {
          row.outputs.first = 4;
        }).find("section model, record 0, outputs: wanted records inside the 5") == 0);
  const char* numbers[] = {"symbols", "weights", "constants", "programs"};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(refused<ModelRecord>(Section::kModel, 0, [i](auto& row) { (&row.symbols)[i] = 7; }) ==
          std::string("section model, record 0, ") + numbers[i] +
              ": wanted the section's number, got 7");
  }
  CHECK(refused<ModelRecord>(Section::kModel, 0, [](auto& row) { row.zero[1] = 9; }) ==
        "section model, record 0, zero: wanted zero, got 9");
  CHECK(refused<ProvenanceRecord>(Section::kProvenance, 1, [](auto& row) {
          row.value.length = kFar;
        }).find("section provenance, record 1, value: wanted text inside") == 0);
}

TEST_CASE("rules: symbols, sizes, dims, tensors") {
  CHECK(refused<SymbolRecord>(Section::kSymbols, 0, [](auto& row) { row.minimum = 65; }) ==
        "section symbols, record 0, range: wanted 0 <= minimum <= maximum < 2^40, got 65 to 64");
  CHECK(refused<SymbolRecord>(Section::kSymbols, 0, [](auto& row) {
          row.maximum = int64_t{1} << 40;
        }).find("section symbols, record 0, range: wanted 0 <=") == 0);
  CHECK(refused<SizeRecord>(Section::kSizes, 1, [](auto& row) {
          row.op = static_cast<SizeOp>(11);
        }) == "section sizes, record 1, op: wanted 1 to 10, got 11");
  CHECK(refused<SizeRecord>(Section::kSizes, 1, [](auto& row) { row.a = 1; }) ==
        "section sizes, record 1, a: wanted zero, got 1");
  CHECK(refused<SizeRecord>(Section::kSizes, 0, [](auto& row) { row.a = 1; }) ==
        "section sizes, record 0, a: wanted a number below 1, got 1");
  CHECK(refused<SizeRecord>(Section::kSizes, 0, [](auto& row) { row.b = 1; }) ==
        "section sizes, record 0, b: wanted zero, got 1");
  CHECK(refused<SizeRecord>(Section::kSizes, 1, [](auto& row) { row = {SizeOp::kAdd, 0, 1}; }) ==
        "section sizes, record 1, b: wanted a number below 1, got 1");
  CHECK(refused<SizeRecord>(Section::kSizes, 1, [](auto& row) { row = {SizeOp::kAdd, 1, 0}; }) ==
        "section sizes, record 1, a: wanted a number below 1, got 1");
  CHECK(refused<SizeRecord>(Section::kSizes, 1, [](auto& row) { row = {SizeOp::kAdd, 0, -1}; }) ==
        "section sizes, record 1, b: wanted a number below 1, got -1");
  CHECK(refused<SizeRecord>(Section::kSizes, 0, [](auto& row) { row.b = -1; }) ==
        "section sizes, record 0, b: wanted zero, got -1");
  CHECK(refused<Slot>(Section::kDims, 2, [](auto& slot) {
          slot = kFar;
        }).find("section dims, record 2, slot: wanted a number below ") == 0);
  CHECK(refused<TensorRecord>(Section::kTensors, 3, [](auto& row) { row.dtype = 16; }) ==
        "section tensors, record 3, dtype: wanted 1 to 15, got 16");
  CHECK(refused<TensorRecord>(Section::kTensors, 3, [](auto& row) { row.zero = 1; }) ==
        "section tensors, record 3, zero: wanted zero, got 1");
  CHECK(refused<TensorRecord>(Section::kTensors, 0, [](auto& row) {
          row.shape.first = kFar;
        }).find("section tensors, record 0, shape: wanted records inside the ") == 0);
  CHECK(refused([](Patch& patch) {
          auto* rows = patch.records<TensorRecord>(Section::kTensors);
          rows[1].name = rows[0].name;
        }) == "section tensors, record 0, name: wanted names that differ, got 'x' twice");
  CHECK(refused<TensorRecord>(Section::kTensors, 0, [](auto& row) {
          row.name.length = kFar;
        }).find("section tensors, record 0, name: wanted text inside") == 0);
  CHECK(refused([](Patch& patch) {
          auto* rows = patch.records<TensorRecord>(Section::kTensors);
          for (int i = 0; i < 3; ++i) rows[i].shape.count = 0;
        }) ==
        "section symbols, record 0, name: wanted an input with a dimension that is the "
        "symbol, got none that binds 'batch'");
}

TEST_CASE("rules: weights and constants") {
  auto weight = [](size_t record, const std::function<void(WeightRecord&)>& change) {
    return refused<WeightRecord>(Section::kWeights, record, change);
  };
  CHECK(weight(0, [](auto& row) { row.dtype = 0; }) ==
        "section weights, record 0, dtype: wanted 1 to 15, got 0");
  CHECK(weight(0, [](auto& row) { row.shape.first = 0; }) ==
        "section weights, record 0, shape: wanted a size that is a number, got 'batch'");
  CHECK(weight(0, [](auto& row) { row.flags = 8; }) ==
        "section weights, record 0, flags: wanted bits 1, 2 and 4 alone, not 2 with 4, got 8");
  CHECK(weight(1, [](auto& row) { row.flags |= kWeightSettled; }) ==
        "section weights, record 1, flags: wanted bits 1, 2 and 4 alone, not 2 with 4, got 7");
  CHECK(weight(0, [](auto& row) { row.flags = kWeightSettled; }) ==
        "section buffers, record 4, index: wanted a weight that is not settled, got 0");
  CHECK(weight(0, [](auto& row) { row.size = 12; }) ==
        "section weights, record 0, size: wanted 16, got 12");
  CHECK(weight(0, [](auto& row) { row.offset = 64; }) ==
        "section weights, record 0, offset: wanted zero, for it is not embedded, got 64");
  CHECK(weight(0, [](auto& row) { row.sha256[31] = 1; }) ==
        "section weights, record 0, sha256: wanted zero, got 1");
  CHECK(weight(1, [](auto& row) { row.offset = 32; }) ==
        "section weights, record 1, data: wanted an offset that is a multiple of 64, got 32");
  CHECK(weight(1, [](auto& row) { row.offset = 64; }) ==
        "section weights, record 1, data: wanted bytes inside the 24 of weight data, got 24 at 64");
  CHECK(refused([](Patch& patch) {
          auto* rows = patch.records<WeightRecord>(Section::kWeights);
          rows[0].flags = kWeightEmbedded;
        }) ==
        "section weights, record 1, data: wanted an offset of 16 or more, behind the one "
        "before, got 0");
  CHECK(refused([](Patch& patch) {
          auto* rows = patch.records<WeightRecord>(Section::kWeights);
          rows[1].name = rows[0].name;
        }) == "section weights, record 0, name: wanted names that differ, got 'weight' twice");
  CHECK(refused<ConstantRecord>(Section::kConstants, 0, [](auto& row) { row.size = 17; }) ==
        "section constants, record 0, data: wanted bytes inside the 16 of constant data, got 17 at "
        "0");
}

TEST_CASE("rules: codes and kernels") {
  auto code = [](const std::function<void(CodeRecord&)>& change) {
    return refused<CodeRecord>(Section::kCodes, 0, change);
  };
  CHECK(code([](auto& row) { row.format = static_cast<CodeFormat>(4); }) ==
        "section codes, record 0, format: wanted 1 to 3, got 4");
  CHECK(code([](auto& row) { row.entry = 66; }) ==
        "section codes, record 0, entry: wanted a number below 66, got 66");
  CHECK(code([](auto& row) { row.alignment = 48; }) ==
        "section codes, record 0, alignment: wanted a power of two up to 4096, got 48");
  CHECK(code([](auto& row) { row.alignment = 8192; }).find("a power of two") != std::string::npos);
  CHECK(code([](auto& row) { row.alignment = 0; }).find("a power of two") != std::string::npos);
  CHECK(code([](auto& row) { row.format = CodeFormat::kPtx; }) ==
        "section codes, record 0, last byte: wanted NUL at the end of PTX, got 195");
  CHECK(code([](auto& row) { row.format = CodeFormat::kCubin; }) ==
        "section kernels, record 0, codes: wanted images on a CPU, cubins and PTX on CUDA, got 2");
  CHECK(code([](auto& row) { row.launch = 1; }) ==
        "section kernels, record 0, codes: wanted a launch of the kernel, got 1");
  CHECK(code([](auto& row) { row.reserved[0] = 3; }) ==
        "section codes, record 0, zero: wanted zero, got 3");
  CHECK(code([](auto& row) { row.size = 0; }) ==
        "section codes, record 0, entry: wanted a number below 0, got 0");
  auto kernel = [](const std::function<void(KernelRecord&)>& change) {
    return refused<KernelRecord>(Section::kKernels, 1, change);
  };
  CHECK(kernel([](auto& row) { row.codes.count = 9; }) ==
        "section kernels, record 1, codes: wanted records inside the 6 of codes, got a range that "
        "ends at 11");
  CHECK(kernel([](auto& row) { row.codes.first = 1; }) ==
        "section kernels, record 1, codes: wanted codes of its own, in order, got 1");
  CHECK(kernel([](auto& row) { row.flags = 2; }) ==
        "section kernels, record 1, flags: wanted bit 1 alone, got 2");
  CHECK(kernel([](auto& row) { row.launches.count = 3; }) ==
        "section kernels, record 1, launches: wanted records inside the 3 of launches, got a range "
        "that ends at 4");
  CHECK(kernel([](auto& row) { row.launches.count = 0; }) ==
        "section kernels, record 1, codes: wanted a launch of the kernel, got 0");
  CHECK(kernel([](auto& row) { row.buffers = 257; }) ==
        "section kernels, record 1, buffers: wanted at most 256, got 257");
  CHECK(kernel([](auto& row) { row.dims = 257; }) ==
        "section kernels, record 1, dims: wanted at most 256, got 257");
  CHECK(kernel([](auto& row) { row.zero[11] = 1; }) ==
        "section kernels, record 1, zero: wanted zero, got 1");
  auto launch = [](const std::function<void(LaunchRecord&)>& change) {
    return refused<LaunchRecord>(Section::kLaunches, 1, change);
  };
  CHECK(launch([](auto& row) { row.block[2] = 0; }) ==
        "section launches, record 1, block: wanted 1 or more, got 0");
  CHECK(launch([](auto& row) { row.cluster = 9; }) ==
        "section launches, record 1, cluster: wanted 1 to 8, got 9");
  CHECK(launch([](auto& row) { row.flags = 2; }) ==
        "section launches, record 1, flags: wanted bit 1 alone, got 2");
  CHECK(launch([](auto& row) { row.tensor_maps = 17; }) ==
        "section launches, record 1, tensor maps: wanted at most 16, got 17");
}

TEST_CASE("rules: programs and buffers") {
  auto program = [](const std::function<void(ProgramRecord&)>& change) {
    return refused<ProgramRecord>(Section::kPrograms, 0, change);
  };
  CHECK(program([](auto& row) { row.target = 3; }) ==
        "section programs, record 0, target: wanted 1 or 2, got 3");
  CHECK(program([](auto& row) { row.kernels.count = 4; })
            .find("record 0, kernels: wanted records "
                  "inside the 3 of kernels") != std::string::npos);
  CHECK(program([](auto& row) { row.init_arena = 0; }) ==
        "section programs, record 0, init arena: wanted a size that is a number, got 'batch'");
  CHECK(program([](auto& row) {
          row.main_arena = kFar;
        }).find("main arena: wanted a number below") != std::string::npos);
  CHECK(program([](auto& row) { row.state = uint64_t{1} << 47; }) ==
        "section programs, record 0, state: wanted less than 2^47 bytes, got 140737488355328");
  CHECK(program([](auto& row) { row.flags = 2; }) ==
        "section programs, record 0, flags: wanted bit 1 alone, got 2");
  CHECK(program([](auto& row) { row.reserved[8] = 1; }) ==
        "section programs, record 0, zero: wanted zero, got 1");
  auto buffer = [](size_t record, const std::function<void(BufferRecord&)>& change) {
    return refused<BufferRecord>(Section::kBuffers, record, change);
  };
  CHECK(buffer(0, [](auto& row) { row.kind = static_cast<BufferKind>(9); }) ==
        "section buffers, record 0, kind: wanted 1 to 8, got 9");
  CHECK(buffer(0, [](auto& row) { row.index = 3; }) ==
        "section buffers, record 0, index: wanted a number below 3, got 3");
  CHECK(buffer(8, [](auto& row) { row.index = 1; }) ==
        "section buffers, record 8, index: wanted a number below 1, got 1");
  CHECK(buffer(0, [](auto& row) { row.offset = 1; }) ==
        "section buffers, record 0, offset: wanted zero, for it is neither state nor arena, got 4");
  CHECK(buffer(0, [](auto& row) { row.size = kFar; }).find("size: wanted a number below") !=
        std::string::npos);
  CHECK(buffer(7, [](auto& row) { row.offset = 1; }) ==
        "section buffers, record 7, offset: wanted a multiple of 64 inside the state, got 4");
  auto negative = [](size_t record, Slot BufferRecord::* field) {
    return refused([&](Patch& patch) {
      constexpr Slot kSixtyFour = 12;
      patch.records<SizeRecord>(Section::kSizes)[kSixtyFour].b = -64;
      patch.records<BufferRecord>(Section::kBuffers)[record].*field = kSixtyFour;
    });
  };
  CHECK(negative(6, &BufferRecord::size) ==
        "section buffers, record 6, size: wanted 0 or more bytes, inside what it names, got -64");
  CHECK(negative(7, &BufferRecord::offset) ==
        "section buffers, record 7, offset: wanted a multiple of 64 inside the state, got -64");
  CHECK(refused<ProgramRecord>(Section::kPrograms, 0, [](auto& row) { row.state = 64; }) ==
        "section buffers, record 7, size: wanted 0 or more bytes, inside what it names, got 16");
  CHECK(refused<ConstantRecord>(Section::kConstants, 0, [](auto& row) { row.size = 15; }) ==
        "section buffers, record 6, size: wanted 0 or more bytes, inside what it names, got 16");
}

TEST_CASE("rules: instructions") {
  auto instruction = [](size_t record, const std::function<void(InstructionRecord&)>& change) {
    return refused<InstructionRecord>(Section::kInstructions, record, change);
  };
  CHECK(instruction(0, [](auto& row) { row.opcode = static_cast<Opcode>(3); }) ==
        "section instructions, record 0, opcode: wanted 1 or 2, got 3");
  CHECK(instruction(1, [](auto& row) { row.kernel = 3; }) ==
        "section instructions, record 1, kernel: wanted a number below 3, got 3");
  CHECK(instruction(3, [](auto& row) { row.kernel = 1; }) ==
        "section instructions, record 3, kernel: wanted zero, for it is a copy, got 1");
  CHECK(instruction(1, [](auto& row) { row.buffers.count = 3; }) ==
        "section instructions, record 1, buffers: wanted 4, got 3");
  CHECK(instruction(3, [](auto& row) { row.dims.count = 1; }) ==
        "section instructions, record 3, dims: wanted 0, got 1");
  CHECK(instruction(1, [](auto& row) { row.buffers.first = kFar; }).find("of arguments, got") !=
        std::string::npos);
  CHECK(instruction(1, [](auto& row) { row.work = kFar; }).find("work: wanted a number") !=
        std::string::npos);
  CHECK(instruction(1, [](auto& row) { row.grids.count = 2; }) ==
        "section instructions, record 1, grids: wanted 3, got 2");
  CHECK(instruction(1, [](auto& row) { row.tensor_maps.count = 1; }) ==
        "section instructions, record 1, tensor maps: wanted 0, got 1");
  CHECK(instruction(1, [](auto& row) { row.zero = 1; }) ==
        "section instructions, record 1, zero: wanted zero, got 1");
  CHECK(refused([](Patch& patch) {
          auto& row = patch.records<InstructionRecord>(Section::kInstructions)[1];
          row.buffers = {0, 13};
          patch.records<KernelRecord>(Section::kKernels)[row.kernel].buffers = 13;
        }).find("section instructions, record 2, buffers: wanted records of its own, got") == 0);
  CHECK(
      instruction(0, [](auto& row) { row.work = 0; }) ==
      "section instructions, record 0, work of init: wanted a size that is a number, got 'batch'");
  CHECK(
      instruction(0, [](auto& row) { row.grids.first = 0; }) ==
      "section instructions, record 0, grids of init: wanted a size that is a number, got 'batch'");
  CHECK(
      instruction(0, [](auto& row) { row.dims.first = 0; }) ==
      "section instructions, record 0, dims of init: wanted a size that is a number, got 'batch'");
  CHECK(refused<uint32_t>(Section::kArguments, 4, [](auto& number) { number = 10; }) ==
        "section instructions, record 1, buffers: wanted a number below 10, got 10");
  CHECK(refused<uint32_t>(Section::kArguments, 0, [](auto& number) { number = 0; }) ==
        "section instructions, record 0, buffers: wanted no input or output in init, got 0");
  CHECK(refused<uint32_t>(Section::kArguments, 0, [](auto& number) { number = 8; }) ==
        "section instructions, record 0, buffers: wanted a size that is a number, got 'batch * 4'");
  CHECK(refused<uint32_t>(Section::kArguments, 12, [](auto& number) { number = 7; }) ==
        "section instructions, record 3, buffers: wanted a copy into an output, the arena or, in "
        "init, the state, got 7");
}
