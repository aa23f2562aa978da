#include <random>

#include "allocations.h"
#include "support.h"

using namespace heddle;
using test::Bytes;
using test::parse;
using test::Patch;
using test::tiny_bytes;

namespace {

// For the texts of errors, and what the test itself holds.
constexpr size_t kMessages = 2048;

/// Parses, and looks at the memory that it took. True where the bytes were accepted.
bool accepted(const Bytes& bytes, ArtifactReason* reason) {
  test::Allocations allocations;
  bool fine = false;
  try {
    parse(bytes);
    fine = true;
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kArtifact);
    *reason = error.reason();
  }
  REQUIRE(allocations.peak() <= 2 * bytes.size() + kMessages);
  return fine;
}

/// Follows every reference that an accepted artifact offers, and plans without running anything.
void use(const Bytes& bytes) {
  std::shared_ptr<const Artifact> artifact = parse(bytes);
  size_t seen = artifact->name().size();
  for (Slot slot = 0; slot < artifact->sizes().size(); ++slot) {
    seen += artifact->size_text(slot).size();
  }
  for (const WeightRecord& weight : artifact->weights()) seen += artifact->shape(weight).rank();
  for (const TensorRecord& input : artifact->inputs()) {
    seen += artifact->shape_text(input.shape).size();
  }
  for (const ProgramRecord& program : artifact->programs()) {
    for (const KernelRecord& kernel : artifact->kernels(program)) {
      for (const CodeRecord& code : artifact->codes(kernel))
        seen += artifact->code(code)[code.size - 1];
    }
  }
  CHECK(seen > 0);
  try {
    auto program = Program::load(artifact, test::cpu());
    for (int64_t batch : {0, 1, 64}) {
      test::Tiny tiny(batch);
      try {
        program->plan(tiny.in());
      } catch (const Error& error) {
        REQUIRE(error.kind() == ErrorKind::kInput);
      }
    }
  } catch (const Error& error) {
    bool typed = error.kind() == ErrorKind::kDevice || error.kind() == ErrorKind::kArtifact;
    REQUIRE(typed);
  }
}

}  // namespace

TEST_CASE("damage: every single bit is noticed") {
  Bytes bytes = tiny_bytes();
  REQUIRE(bytes.size() > 1000);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    ArtifactReason reason;
    REQUIRE_FALSE(accepted(bytes, &reason));
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  ArtifactReason reason;
  CHECK(accepted(bytes, &reason));
}

TEST_CASE("damage: every truncation is noticed") {
  for (size_t size = 0; size < tiny_bytes().size(); ++size) {
    ArtifactReason reason;
    REQUIRE_FALSE(accepted(Bytes(tiny_bytes().begin(), tiny_bytes().begin() + size), &reason));
    REQUIRE(reason == ArtifactReason::kTruncated);
  }
}

TEST_CASE("damage: hostile records with the right checksums do no harm") {
  std::mt19937 random(20261120);
  auto below = [&](size_t limit) { return static_cast<uint32_t>(random() % limit); };
  int refused = 0, taken = 0;
  for (int round = 0; round < 6000; ++round) {
    Patch patch;
    for (uint32_t changes = 1 + below(3); changes > 0; --changes) {
      // The table is a target too; code and data are not looked into.
      uint32_t kind = below(static_cast<uint32_t>(Section::kArguments) + 1);
      uint8_t* start = patch.bytes().data() + 8;
      size_t size = sizeof(HeaderRecord) + kSectionCount * sizeof(SectionRecord) - 8;
      if (kind > 0) {
        const SectionRecord& row = patch.row(static_cast<Section>(kind));
        if (row.offset > patch.bytes().size() || row.size > patch.bytes().size() - row.offset)
          continue;
        start = patch.bytes().data() + row.offset;
        size = row.size;
      }
      if (size < 4) continue;
      uint8_t* field = start + below(size / 4) * 4;
      uint32_t value;
      std::memcpy(&value, field, 4);
      const uint32_t values[] = {
          0,          1,          value + 1,  value - 1, value * 2,  value ^ (1u << below(32)),
          0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, below(16), below(4096)};
      value = values[below(std::size(values))];
      std::memcpy(field, &value, 4);
    }
    ArtifactReason reason;
    if (accepted(patch.seal(), &reason)) {
      ++taken;
      use(patch.bytes());
    } else {
      ++refused;
    }
  }
  CHECK(refused > 1000);
  CHECK(taken > 100);
}
