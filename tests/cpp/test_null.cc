#include <functional>
#include <string>
#include <utility>

#include "heddle/safetensors.h"
#include "support.h"

using namespace heddle;
using test::refused;
using test::Tiny;

TEST_CASE("null: handles that are null or were moved from") {
  auto artifact = test::parse(test::tiny_bytes());
  auto owner = std::move(artifact);
  const std::string wanted = ": wanted one, got a null pointer (was it moved from?)";
  CHECK(refused([&] { Program::load(artifact, test::cpu()); }) == "Program: artifact" + wanted);
  CHECK(refused([&] { Program::load(owner, nullptr); }) == "Program: device" + wanted);
  CHECK(refused([] { Model(nullptr, {}); }) == "Model: program" + wanted);
  const Buffer buffer = Buffer::allocate(test::cpu(), DType::kInt8, {4});
  CHECK(refused([&] { buffer.copy_to(nullptr); }) == "copy_to: device" + wanted);
  CHECK(refused([] { Buffer::allocate(nullptr, DType::kInt8, {4}, Stream()); }) ==
        "a buffer's device" + wanted);
  CHECK(refused([] { Model::replay({{}}, 1, 1); }) == "replay: wanted models, got a null pointer");
}

TEST_CASE("null: a path that goes on behind a NUL names no file") {
  const std::string path(HEDDLE_GOLDEN "/tiny.heddle\0.old", sizeof(HEDDLE_GOLDEN) + 17);
  const std::string wanted =
      "path: wanted one without NUL, got one after '" HEDDLE_GOLDEN "/tiny.heddle'";
  CHECK(refused([&] { Artifact::open(path); }) == wanted);
  CHECK(refused([&] { Safetensors::open(path); }) == wanted);
}

TEST_CASE("null: bytes of an artifact") {
  const std::string wanted = "artifact: wanted 100 bytes, got a null pointer";
  CHECK(refused([] { Artifact::from_memory(nullptr, 100); }) == wanted);
  CHECK(refused([] { Artifact::from_memory(nullptr, 100, nullptr); }) == wanted);
  CHECK(test::caught([] { Artifact::from_memory(nullptr, 0); }).reason() ==
        ArtifactReason::kTruncated);
}

TEST_CASE("null: memory of a buffer that was moved from") {
  auto model = test::tiny_model();
  Tiny tiny(2);
  Buffer x = Buffer::allocate(test::cpu(), DType::kFloat32, {2, 4});
  Buffer owner = std::move(x);
  tiny.inputs[0] = x.view();
  CHECK(refused([&] { model->execute(tiny.in(), tiny.out()); }) ==
        "input 'x': wanted memory, got a null pointer");
  tiny.inputs[0] = owner.view();
  x = std::move(owner);
  tiny.outputs[0] = owner.view();
  CHECK(refused([&] { model->execute(tiny.in(), tiny.out()); }) ==
        "output 'shifted': wanted memory, got a null pointer");
  for (const Buffer& empty : {Buffer(), owner}) {
    const std::string wanted =
        "a buffer: wanted one with memory, got one without (was it moved from?)";
    CHECK(refused([&] { empty.device(); }) == wanted);
    CHECK(refused([&] { empty.synchronize(); }) == wanted);
    CHECK(refused([&] { empty.copy_to(test::cpu()); }) == wanted);
  }
  CHECK(refused([] { Buffer(nullptr, DType::kInt8, {1}); }).rfind("a buffer's storage", 0) == 0);
}
