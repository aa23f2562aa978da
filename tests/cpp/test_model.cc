#include <atomic>
#include <thread>

#include "allocations.h"
#include "heddle/live.h"
#include "support.h"

using namespace heddle;
using test::caught;
using test::Patch;
using test::Tiny;

namespace {

std::string message(const std::function<void()>& action, ErrorKind kind) {
  Error error = caught(action);
  CHECK(error.kind() == kind);
  return error.what();
}

void check_result(const Tiny& tiny) {
  for (size_t i = 0; i < tiny.x.size(); ++i) {
    REQUIRE(tiny.shifted[i] == tiny.wanted(i));
    REQUIRE(tiny.same[i] == tiny.x[i]);
  }
}

}  // namespace

TEST_CASE("model: computes every shape in its range, and nothing stays behind") {
  LiveObjects before = live_objects();
  {
    auto model = test::tiny_model();
    CHECK(model->state_size() == 128);
    for (int64_t batch : {1, 7, 64, 0, 7, 1, 33}) {
      Tiny tiny(batch);
      model->execute(tiny.in(), tiny.out());
      check_result(tiny);
      std::vector<Buffer> outputs = model->execute(tiny.in());
      REQUIRE(outputs.size() == 2);
      CHECK(outputs[0].shape() == Shape{batch, 4});
      CHECK(outputs[1].shape() == Shape{batch * 4});
      if (batch > 0)
        CHECK(std::memcmp(outputs[0].data(), tiny.shifted.data(), outputs[0].bytes()) == 0);
    }
    CHECK(live_objects().models == before.models + 1);
    CHECK(live_objects().arenas == before.arenas + 1);
  }
  LiveObjects after = live_objects();
  CHECK(after.artifacts == before.artifacts);
  CHECK(after.storages == before.storages);
  CHECK(after.programs == before.programs);
  CHECK(after.models == before.models);
  CHECK(after.arenas == before.arenas);
}

TEST_CASE("model: many models share one program") {
  auto program = Program::load(test::parse(test::tiny_bytes()), test::cpu());
  const float other[4] = {0, 0, 0, 0};
  Model first(program, test::tiny_weights());
  Model second(program, {{"weight", DType::kFloat32, {4}, other, nullptr}});
  Tiny tiny(2);
  first.execute(tiny.in(), tiny.out());
  check_result(tiny);
  second.execute(tiny.in(), tiny.out());
  CHECK(tiny.shifted[0] == 0.5f);
}

TEST_CASE("model: a repeated shape allocates nothing, and more shapes than are kept work") {
  auto model = test::tiny_model();
  for (int64_t batch = 0; batch <= 64; ++batch) {
    Tiny tiny(batch);
    model->execute(tiny.in(), tiny.out());
    check_result(tiny);
  }
  Tiny tiny(5);
  model->execute(tiny.in(), tiny.out());
  test::Allocations allocations;
  for (int i = 0; i < 10; ++i) model->execute(tiny.in(), tiny.out());
  CHECK(allocations.count() == 0);
}

TEST_CASE("model: many threads, many shapes") {
  auto model = test::tiny_model();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t round = 0; round < 300; ++round) {
        Tiny tiny((thread * 17 + round) % 65);
        model->execute(tiny.in(), tiny.out());
        for (size_t i = 0; i < tiny.x.size(); ++i) {
          if (tiny.shifted[i] != tiny.wanted(i) || tiny.same[i] != tiny.x[i]) ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
}

TEST_CASE("model: a value out of range is named, and the next call is fine") {
  auto model = test::tiny_model();
  Tiny tiny(3);
  tiny.indices[1] = 40000;
  CHECK(message([&] { model->execute(tiny.in(), tiny.out()); }, ErrorKind::kInput) ==
        "gather at tiny.py:2: wanted an index inside a size of 6, got 40000");
  tiny.indices[1] = -1;
  CHECK(message([&] { model->execute(tiny.in()); }, ErrorKind::kInput) ==
        "gather at tiny.py:2: wanted an index inside a size of 6, got -1");
  tiny.indices[1] = 5;
  model->execute(tiny.in(), tiny.out());
  check_result(tiny);
}

TEST_CASE("model: refused inputs") {
  auto model = test::tiny_model();
  auto refused = [&](const std::function<void(Tiny&)>& change) {
    Tiny tiny(2);
    change(tiny);
    return message([&] { model->execute(tiny.in(), tiny.out()); }, ErrorKind::kInput);
  };
  CHECK(refused([](Tiny& tiny) { tiny.inputs.pop_back(); }) ==
        "execute: wanted 3 inputs (x, indices, pairs), got 2");
  CHECK(refused([](Tiny& tiny) { tiny.inputs[1].dtype = DType::kInt32; }) ==
        "input 'indices': wanted dtype int64, got int32");
  CHECK(refused([](Tiny& tiny) { tiny.inputs[0].device = DeviceKind::kCuda; }) ==
        "input 'x': wanted memory of cpu:0, got memory of cuda:0");
  CHECK(refused([](Tiny& tiny) { tiny.inputs[0].shape = {8}; }) ==
        "input 'x': wanted shape [batch, 4], got [8]");
  CHECK(refused([](Tiny& tiny) { tiny.inputs[0].shape = {2, 5}; }) ==
        "axis 1 of input 'x': wanted 4, got 5");
  CHECK(refused([](Tiny& tiny) { tiny.inputs[0].shape = {65, 4}; }) ==
        "dim 'batch' of input 'x': wanted 0 to 64, got 65");
  CHECK(refused([](Tiny& tiny) { tiny.inputs[1].shape = {3}; }) ==
        "dim 'batch' of input 'indices': wanted 2 as in input 'x', got 3");
  CHECK(refused([](Tiny& tiny) { tiny.inputs[2].shape = {5}; }) ==
        "dim 'batch * 2' of input 'pairs': wanted 4, got 5");
  CHECK(refused([](Tiny& tiny) { tiny.inputs[0].shape = {2, int64_t{1} << 62}; }) ==
        "input 'x': wanted a size in bytes that fits 63 bits, got [2, 4611686018427387904]");
}

TEST_CASE("model: refused outputs") {
  auto model = test::tiny_model();
  auto refused = [&](const std::function<void(Tiny&)>& change) {
    Tiny tiny(2);
    change(tiny);
    return message([&] { model->execute(tiny.in(), tiny.out()); }, ErrorKind::kInput);
  };
  CHECK(refused([](Tiny& tiny) { tiny.outputs.pop_back(); }) ==
        "execute: wanted 2 outputs (shifted, same), got 1");
  CHECK(refused([](Tiny& tiny) { tiny.outputs[0].dtype = DType::kInt32; }) ==
        "output 'shifted': wanted dtype float32, got int32");
  CHECK(refused([](Tiny& tiny) { tiny.outputs[0].shape = {2, 3}; }) ==
        "output 'shifted': wanted shape [2, 4], got [2, 3]");
  CHECK(refused([](Tiny& tiny) { tiny.outputs[1].device_index = 1; }) ==
        "output 'same': wanted memory of cpu:0, got memory of another device");
  CHECK(refused([](Tiny& tiny) { tiny.outputs[0].data = tiny.x.data() + 7; }) ==
        "output 'shifted': wanted memory of its own, got memory of input 'x'");
  CHECK(refused([](Tiny& tiny) { tiny.outputs[1].data = tiny.shifted.data(); }) ==
        "output 'same': wanted memory of its own, got memory of output 'shifted'");
}

TEST_CASE("model: refused weights") {
  auto program = Program::load(test::parse(test::tiny_bytes()), test::cpu());
  auto refused = [&](std::vector<WeightSource> weights) {
    Error error = caught([&] { Model(program, weights); });
    CHECK(error.reason() == ArtifactReason::kWeights);
    return std::string(error.what());
  };
  WeightSource fine = test::tiny_weights()[0];
  CHECK(refused({}) ==
        "<memory>: weights: wanted 1, and 1 not given: 'weight' (give them when loading, or "
        "embed them when compiling)");
  std::vector<WeightSource> extra{fine};
  for (char name = 'a'; name < 'm'; ++name) {
    extra.push_back({std::string(1, name), DType::kFloat32, {4}, test::kTinyWeight, nullptr});
  }
  CHECK(
      refused(extra) ==
      "<memory>: weights: given, and not wanted: 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j' "
      "and 2 more");
  CHECK(refused({fine, fine}) == "<memory>: weights: 'weight' is given twice");
  fine.shape = {5};
  CHECK(refused({fine}) == "<memory>: weight 'weight': wanted float32[4], got float32[5]");
  fine.shape = {4};
  fine.data = nullptr;
  CHECK(refused({fine}) == "<memory>: weight 'weight': wanted memory, got a null pointer");
  fine.dtype = DType::kFloat16;
  CHECK(refused({fine}) == "<memory>: weight 'weight': wanted float32[4], got float16[4]");
}

TEST_CASE("model: an embedded weight gives way to one that is given") {
  auto table = std::make_shared<std::vector<float>>(6, 1.0f);
  std::vector<WeightSource> weights = test::tiny_weights();
  weights.push_back({"table", DType::kFloat32, {6}, table->data(), table});
  {
    Model model(Program::load(test::parse(test::tiny_bytes()), test::cpu()), weights);
    weights.clear();
    CHECK(table.use_count() == 1);  // it is small: there is a copy
    Tiny tiny(1);
    model.execute(tiny.in(), tiny.out());
    CHECK(tiny.shifted[0] == 11.5f);
  }
  CHECK(table.use_count() == 1);
}

TEST_CASE("model: weights may lie at any alignment") {
  std::vector<char> bytes(17);
  std::memcpy(bytes.data() + 1, test::kTinyWeight, 16);
  auto program = Program::load(test::parse(test::tiny_bytes()), test::cpu());
  Model model(program, {{"weight", DType::kFloat32, {4}, bytes.data() + 1, nullptr}});
  Tiny tiny(1);
  model.execute(tiny.in(), tiny.out());
  check_result(tiny);
}

TEST_CASE("program: refused where there is none for the device, or no code for the CPU") {
  Patch other;
  other.records<ProgramRecord>(Section::kPrograms)->kernels.count = 0;
  other.records<ProgramRecord>(Section::kPrograms)->init.count = 0;
  other.records<ProgramRecord>(Section::kPrograms)->main.count = 0;
  other.records<ProgramRecord>(Section::kPrograms)->target = 2;
  CHECK(
      message([&] { Program::load(test::parse(other.seal()), test::cpu()); }, ErrorKind::kDevice) ==
      "<memory>: wanted a program for cpu:0, got programs for: cuda");
  Patch foreign;
  Span<CodeRecord> codes = test::parse(foreign.bytes())->records<CodeRecord>(Section::kCodes);
  for (size_t i = 0; i < codes.size(); ++i) {
    foreign.records<CodeRecord>(Section::kCodes)[i].arch =
        foreign.records<ModelRecord>(Section::kModel)->name;
  }
  CHECK(message([&] { Program::load(test::parse(foreign.seal()), test::cpu()); },
                ErrorKind::kDevice) ==
        "<memory>: kernel 'add': wanted code that this CPU runs, got tiny (which lacks a CPU that "
        "is called tiny); tiny (which lacks a CPU that is called tiny)");
  Patch none;
  for (int i = 0; i < 3; ++i) none.records<KernelRecord>(Section::kKernels)[i].codes = {6, 0};
  CHECK(
      message([&] { Program::load(test::parse(none.seal()), test::cpu()); }, ErrorKind::kDevice) ==
      "<memory>: kernel 'add': wanted code that this CPU runs, got none");
}

TEST_CASE("program: the best code that the CPU has is chosen") {
  auto program = Program::load(test::parse(test::tiny_bytes()), test::cpu());
  bool v4 = missing_features("x86-64-v4").empty();
  CHECK(program->code().arch(0) == (v4 ? "x86-64-v4" : "x86-64-v3"));
  CHECK(missing_features("pentium") == std::vector<std::string>{"a CPU that is called pentium"});
}

TEST_CASE("program: sizes that go wrong only now") {
  // Slots of the golden file.
  constexpr Slot kBatch = 0, kBatch4 = 4, kBytes = 7, kSixtyFour = 12, kCeilDiv = 16, kArena = 18;
  auto refused = [](int64_t batch, const std::function<void(Patch&, SizeRecord*)>& change) {
    Patch patch;
    change(patch, patch.records<SizeRecord>(Section::kSizes));
    auto program = Program::load(test::parse(patch.seal()), test::cpu());
    Tiny tiny(batch);
    return message([&] { program->plan(tiny.in()); }, ErrorKind::kInput);
  };
  auto program = [](Patch& patch) { return patch.records<ProgramRecord>(Section::kPrograms); };
  auto step = [](Patch& patch, size_t number) {
    return patch.records<InstructionRecord>(Section::kInstructions) + number;
  };
  CHECK(refused(2, [&](Patch& patch, SizeRecord*) { program(patch)->main_arena = kBatch; }) ==
        "'gather at tiny.py:2', buffer 8: wanted a multiple of 64, inside 2 bytes, got 8 bytes at "
        "64");
  CHECK(refused(2, [&](Patch& patch, SizeRecord*) { step(patch, 3)->work = kArena; }) ==
        "'copy at tiny.py:4': wanted a copy of at most 32 bytes, got 128");
  CHECK(refused(2, [&](Patch&, SizeRecord* sizes) { sizes[kBatch4].op = SizeOp::kSub; }) ==
        "output 'same': wanted sizes of 0 or more that fit 63 bits in bytes, got [-2]");
  CHECK(refused(0, [&](Patch& patch, SizeRecord* sizes) {
          sizes[kBytes].op = SizeOp::kSub;
          program(patch)->main_arena = kBytes;
        }) == "the arena: wanted 0 bytes or more, got -4");
  CHECK(refused(0, [&](Patch& patch, SizeRecord* sizes) {
          sizes[kBytes].op = SizeOp::kSub;
          patch.records<Slot>(Section::kDims)[step(patch, 1)->grids.first] = kBytes;
        }) == "'gather at tiny.py:2': wanted a grid of 0 or more, got -4");
  CHECK(refused(0, [&](Patch&,
                       SizeRecord* sizes) { sizes[kCeilDiv] = {SizeOp::kMod, kBatch4, kBatch}; }) ==
        "size '(batch * 4) % batch': wanted a 64-bit number, got a division by zero at batch "
        "= 0");
  std::string overflow = refused(2, [&](Patch&, SizeRecord* sizes) {
    sizes[kArena - 3] = {SizeOp::kMul, kSixtyFour, kSixtyFour};
    for (Slot slot = kArena - 2; slot <= kArena; ++slot) {
      sizes[slot] = {SizeOp::kMul, slot - 1, slot - 1};  // 64 to the 4th, 8th, 16th
    }
  });
  CHECK(overflow.find("wanted a 64-bit number, got an overflow at batch = 2") != std::string::npos);
}

TEST_CASE("program: init that does not fit is refused at load") {
  Patch patch;
  BufferRecord* buffers = patch.records<BufferRecord>(Section::kBuffers);
  uint32_t* arguments = patch.records<uint32_t>(Section::kArguments);
  buffers[7].kind = BufferKind::kArena;
  CHECK(arguments[2] == 7);
  Error error = caught([&] { Program::load(test::parse(patch.seal()), test::cpu()); });
  CHECK(error.reason() == ArtifactReason::kMalformed);
  CHECK(std::string(error.what()) ==
        "<memory>: init: 'add at tiny.py:1', buffer 7: wanted a multiple of 64, inside 0 bytes, "
        "got 16 bytes at 64");
}
