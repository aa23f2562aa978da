#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "heddle/live.h"
#include "heddle/mapped_file.h"
#include "support.h"

using namespace heddle;
using test::caught;
using test::parse;
using test::Patch;
using test::tiny_bytes;

TEST_CASE("artifact: all that the golden file says") {
  int64_t before = live_objects().artifacts;
  {
    auto artifact = Artifact::open(HEDDLE_GOLDEN "/tiny.heddle");
    CHECK(live_objects().artifacts == before + 1);
    CHECK(artifact->name() == "tiny");
    CHECK(artifact->size() == tiny_bytes().size());
    CHECK(artifact->text(artifact->provenance()[0].key) == "heddle");
    REQUIRE(artifact->symbols().size() == 1);
    CHECK(artifact->text(artifact->symbols()[0].name) == "batch");
    CHECK(artifact->symbols()[0].maximum == 64);
    REQUIRE(artifact->inputs().size() == 3);
    CHECK(artifact->shape_text(artifact->inputs()[0].shape) == "[batch, 4]");
    CHECK(artifact->shape_text(artifact->inputs()[2].shape) == "[batch * 2]");
    REQUIRE(artifact->outputs().size() == 2);
    CHECK(artifact->text(artifact->outputs()[1].name) == "same");
    REQUIRE(artifact->weights().size() == 3);
    CHECK(artifact->shape(artifact->weights()[1]) == Shape{6});
    CHECK(artifact->weights()[1].flags == (kWeightEmbedded | kWeightHasSha256));
    CHECK(artifact->weights()[2].flags == kWeightSettled);
    float table[6];
    std::memcpy(table, artifact->embedded(artifact->weights()[1]), sizeof(table));
    CHECK(table[5] == 500.0f);
    REQUIRE(artifact->programs().size() == 1);
    const ProgramRecord& program = artifact->programs()[0];
    CHECK(artifact->kernels(program).size() == 3);
    CHECK(artifact->buffers(program).size() == 10);
    CHECK(artifact->size_text(program.main_arena) == "64 + (((batch * 4) ceildiv 64) * 64)");
    CHECK(artifact->instructions(program.main).size() == 3);
  }
  CHECK(live_objects().artifacts == before);
}

TEST_CASE("artifact: files that are not there, or none") {
  Error missing = caught([] { Artifact::open("/nowhere/model.heddle"); });
  CHECK(missing.reason() == ArtifactReason::kNotFound);
  CHECK(std::string(missing.what()) ==
        "/nowhere/model.heddle: cannot be read: No such file or directory");
  Error folder = caught([] { Artifact::open("/tmp"); });
  CHECK(folder.reason() == ArtifactReason::kNotFound);
  CHECK(std::string(folder.what()) == "/tmp: wanted a regular file");
  std::string pipe = "/tmp/heddle_test_" + std::to_string(::getpid()) + ".pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(caught([&] { Artifact::open(pipe); }).reason() == ArtifactReason::kNotFound);
  ::unlink(pipe.c_str());
  Error other = caught([] { Artifact::open(__FILE__); });
  CHECK(other.reason() == ArtifactReason::kNotAnArtifact);
  CHECK(std::string(other.what()) ==
        std::string(__FILE__) +
            ": header: wanted the magic bytes of a Heddle artifact, got another file's");
}

TEST_CASE("artifact: a newer format is refused by name, whatever else it holds") {
  Patch patch;
  patch.header().version = kFormatVersion + 1;
  Error error = caught([&] { parse(patch.bytes()); });
  CHECK(error.reason() == ArtifactReason::kVersion);
  CHECK(std::string(error.what()) ==
        "<memory>: header: format version: wanted 3, got 4 (compile it again)");
}

TEST_CASE("artifact: bytes behind the end") {
  Patch patch;
  patch.bytes().push_back(0);
  Error error = caught([&] { parse(patch.bytes()); });
  CHECK(error.reason() == ArtifactReason::kMalformed);
  CHECK(std::string(error.what()) == "<memory>: file: bytes: wanted " +
                                         std::to_string(tiny_bytes().size()) + ", got " +
                                         std::to_string(tiny_bytes().size() + 1) +
                                         " (the file is damaged: copy or compile it again)");
}

TEST_CASE("artifact: what a copy in text mode makes of it") {
  test::Bytes bytes = tiny_bytes();
  bytes.erase(bytes.begin() + 4);  // the \r before \n
  Error error = caught([&] { parse(bytes); });
  CHECK(error.reason() == ArtifactReason::kNotAnArtifact);
  CHECK(std::string(error.what()) ==
        "<memory>: header: wanted the magic bytes of a Heddle artifact, got them changed (the file "
        "is damaged: copy or compile it again)");
}

TEST_CASE("artifact: large sections are verified without staying resident") {
  // The weight data of the file grows to some megabytes; a damaged byte is found anywhere.
  test::Bytes bytes = tiny_bytes();
  Patch patch(bytes);
  SectionRecord& last = patch.row(Section::kWeightData);
  size_t more = 13'000'001;
  last.size += more;
  patch.header().file_size += more;
  patch.bytes().resize(bytes.size() + more, 1);
  const test::Bytes& sealed = patch.seal();
  std::string path = "/tmp/heddle_test_" + std::to_string(::getpid()) + ".heddle";
  auto write = [&](const test::Bytes& data) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data.data()),
               static_cast<std::streamsize>(data.size()));
  };
  write(sealed);
  CHECK(Artifact::open(path)->size() == sealed.size());
  for (size_t place : {size_t{0}, size_t{2000000}, more / 2, more - 1}) {
    test::Bytes damaged = sealed;
    damaged[bytes.size() + place] ^= 4;
    write(damaged);
    CHECK(caught([&] { Artifact::open(path); }).reason() == ArtifactReason::kChecksum);
  }
  auto file = MappedFile::open(path);
  REQUIRE(::truncate(path.c_str(), 1000000) == 0);
  Error cut = caught([&] { file->checksum(0, sealed.size()); });
  CHECK(cut.reason() == ArtifactReason::kTruncated);
  CHECK(std::string(cut.what()) == "cannot be read at byte 1000000");
  std::remove(path.c_str());
}

TEST_CASE("artifact: bytes in memory are used where they are, as long as it lives") {
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  const test::Bytes& bytes = tiny_bytes();
  auto lines = std::make_shared<std::vector<Line>>(bytes.size() / 64 + 2);
  uint8_t* data = lines->front().bytes;
  std::memcpy(data, bytes.data(), bytes.size());
  auto artifact = Artifact::from_memory(data, bytes.size(), lines);
  CHECK(artifact->path() == "<memory>");
  CHECK(artifact->data() == data);
  CHECK(lines.use_count() == 2);
  artifact.reset();
  CHECK(lines.use_count() == 1);
  std::memmove(data + 4, data, bytes.size());
  Error error = caught([&] { Artifact::from_memory(data + 4, bytes.size(), lines); });
  CHECK(error.kind() == ErrorKind::kInput);
  CHECK(std::string(error.what()) ==
        "artifact: wanted bytes at a multiple of 64, got 4 beyond one");
  CHECK(lines.use_count() == 1);
}

TEST_CASE("artifact: records stay as they were verified, whoever writes into the file") {
  const std::string path = "/tmp/heddle_test_" + std::to_string(::getpid()) + ".heddle";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tiny_bytes().data()),
             static_cast<std::streamsize>(tiny_bytes().size()));
  auto artifact = Artifact::open(path);
  Model model(Program::load(artifact, test::cpu()), test::tiny_weights());
  const SectionRecord code = artifact->sections()[static_cast<size_t>(Section::kCode) - 1];
  const std::string others(code.offset, 1);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << others;
  for (int64_t batch : {1, 2, 5}) {
    test::Tiny tiny(batch);
    model.execute(tiny.in(), tiny.out());
    CHECK(tiny.shifted.back() == tiny.wanted(tiny.shifted.size() - 1));
  }
  CHECK(artifact->name() == "tiny");
  std::remove(path.c_str());
}

TEST_CASE("artifact: a file may be called by another name") {
  CHECK(Artifact::open(HEDDLE_GOLDEN "/tiny.heddle", "tiny")->path() == "tiny");
  Error other = caught([] { Artifact::open(__FILE__, "other"); });
  CHECK(std::string(other.what()).rfind("other: header: ", 0) == 0);
}
