#include <unistd.h>

#include <cstdio>

#include "heddle/safetensors.h"
#include "json.h"
#include "support.h"

using namespace heddle;
using test::caught;

namespace {

/// A file that goes with its owner.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes)
      : path_("/tmp/heddle_test_" + std::to_string(::getpid()) + ".safetensors") {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string with_length(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string refused(const std::string& bytes) {
  TemporaryFile file(bytes);
  Error error = caught([&] { Safetensors::open(file.path()); });
  CHECK(error.reason() == ArtifactReason::kWeights);
  std::string text = error.what();
  REQUIRE(text.rfind(file.path() + ": ", 0) == 0);
  return text.substr(file.path().size() + 2);
}

const std::string kHeader =
    R"( {"__metadata__":{"format":"pt"}, "b\u00e9\ud83e\uddf5\n":{"dtype":"F32","shape":[2,1],)"
    R"("data_offsets":[0,8]},"a":{"shape":[],"data_offsets":[8,10],"dtype":"BF16"}}   )";

}  // namespace

TEST_CASE("safetensors: names, shapes and data without a copy") {
  float values[2] = {1.5f, -2.0f};
  TemporaryFile file(with_length(kHeader, std::string(reinterpret_cast<char*>(values), 8) + "xy"));
  auto tensors = Safetensors::open(file.path());
  REQUIRE(tensors->tensors().size() == 2);
  const NamedTensor& first = tensors->tensors()[0];
  CHECK(first.name == "b\xC3\xA9\xF0\x9F\xA7\xB5\n");
  CHECK(first.dtype == DType::kFloat32);
  CHECK(first.shape == Shape{2, 1});
  CHECK(std::memcmp(first.data, values, 8) == 0);
  CHECK(tensors->tensors()[1].dtype == DType::kBFloat16);
  CHECK(tensors->tensors()[1].shape == Shape{});
  CHECK(std::memcmp(tensors->tensors()[1].data, "xy", 2) == 0);
  const char* bytes = R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},)"
                      R"("b":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[2,3]}})";
  TemporaryFile small(with_length(bytes, "xyz"));
  auto floats = Safetensors::open(small.path());
  CHECK(floats->tensors()[0].dtype == DType::kFloat8E4M3FN);
  CHECK(floats->tensors()[1].dtype == DType::kFloat8E5M2);
}

TEST_CASE("safetensors: an empty file of tensors") {
  TemporaryFile file(with_length("{}", ""));
  CHECK(Safetensors::open(file.path())->tensors().empty());
}

TEST_CASE("safetensors: every truncation is noticed") {
  std::string whole = with_length(kHeader, "12345678xy");
  for (size_t size = 0; size < whole.size(); ++size) refused(whole.substr(0, size));
  CHECK(refused(whole + "z") == "data: wanted 10 bytes, the end of the last tensor, got 11");
  CHECK(refused("1234") == "file: wanted 8 bytes or more, got 4");
  CHECK(refused(whole.substr(0, 20)) ==
        "header: wanted at most 12 bytes, got " + std::to_string(kHeader.size()));
  CHECK(caught([] { Safetensors::open("/nowhere/w.safetensors"); }).reason() ==
        ArtifactReason::kNotFound);
}

TEST_CASE("safetensors: another kind of file") {
  CHECK(refused("not a file of tensors") == "wanted a safetensors file, got another");
  CHECK(refused(with_length("PK", "")) == "wanted a safetensors file, got another");
}

TEST_CASE("safetensors: tensors that are wrong") {
  auto one = [](const std::string& fields) {
    return refused(with_length("{\"t\":{" + fields + "}}", "12345678"));
  };
  const std::string fine = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  CHECK(one(R"("dtype":"F4","shape":[2],"data_offsets":[0,8])") ==
        "tensor 't': wanted a dtype that Heddle has, got 'F4'");
  CHECK(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])") ==
        "tensor 't', data_offsets: wanted 12 bytes, got 8");
  CHECK(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])") ==
        "tensor 't', data_offsets: wanted 8 bytes, got -8");
  CHECK(one(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])") ==
        "tensor 't', data_offsets: wanted an end inside the file's 8 bytes of data, got 16");
  CHECK(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])") ==
        "tensor 't', data_offsets: wanted a begin of 0, the end of the tensor before, got 4");
  CHECK(one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8])") ==
        "tensor 't': wanted a shape that fits 63 bits in bytes, got [4611686018427387904, 4]");
  CHECK(one(R"("dtype":"F32","shape":[2])") ==
        "tensor 't': wanted dtype, shape and data_offsets, got fewer");
  CHECK(one(fine + R"(,"dtype":"F32")") ==
        "tensor 't': wanted dtype, shape and data_offsets, once each, got 'dtype'");
  CHECK(one(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])") ==
        "tensor 't': wanted at most 16 dimensions, got more");
  CHECK(refused(with_length("{\"t\":{" + fine + "},\"t\":{" + fine + "}}", "12345678")) ==
        "tensor 't': wanted names that differ, got it twice");
  const std::string half = R"("dtype":"U8","shape":[5],"data_offsets":)";
  CHECK(refused(with_length("{\"t\":{" + half + "[0,5]},\"u\":{" + half + "[3,8]}}", "12345678")) ==
        "tensor 'u', data_offsets: wanted a begin of 5, the end of the tensor before, got 3");
}

TEST_CASE("json: what is refused, and where") {
  auto text = [](const std::string& json, const std::function<void(JsonReader&)>& read) {
    JsonReader reader(json);
    return std::string(caught([&] { read(reader); }).what());
  };
  auto string = [](JsonReader& reader) { reader.string(); };
  auto number = [](JsonReader& reader) { reader.number(); };
  CHECK(text("x", string) == "header, position 0: wanted '\"', got 'x'");
  CHECK(text("\"a", string) == "header, position 2: wanted the end of a string, got the end");
  CHECK(text("\"\n\"", string) ==
        "header, position 1: wanted a string without control characters, got byte 0x0a");
  CHECK(text("\"\\q\"", string) == "header, position 2: wanted an escape, got 'q'");
  CHECK(text("\"\\", string) == "header, position 2: wanted an escape, got the end");
  CHECK(text("\"\\u12g4\"", string) == "header, position 5: wanted four hex digits, got 'g'");
  CHECK(text("\"\\ud83e\\n\"", string).find("wanted 'u' and four hex digits") != std::string::npos);
  CHECK(text("\"\\ud83ex\"", string).find("wanted the second half of a pair") != std::string::npos);
  CHECK(text("\"\\ud83e\\u0041\"", string).find("the second half of a pair") != std::string::npos);
  CHECK(text("\"\xFF\"", string).find("wanted before it a string of UTF-8 without NUL") !=
        std::string::npos);
  CHECK(text("\"\\udd00\"", string).find("wanted before it a string of UTF-8") !=
        std::string::npos);
  CHECK(text("-1", number) == "header, position 0: wanted a whole number, got '-'");
  CHECK(text("012", number) == "header, position 3: wanted a whole number, got the end");
  CHECK(text("9223372036854775808", number).find("wanted a number below 2^63") !=
        std::string::npos);
  CHECK(text(" []", [](JsonReader& reader) { reader.end(); }) ==
        "header, position 1: wanted the end, got '['");
  JsonReader escapes(R"("\"\\\/\b\f\n\r\t\u0041")");
  CHECK(escapes.string() == "\"\\/\b\f\n\r\tA");
}
