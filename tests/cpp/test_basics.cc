#include <limits>

#include "heddle/live.h"
#include "heddle/sizes.h"
#include "support.h"
#include "utf8.h"

using namespace heddle;
using test::caught;

TEST_CASE("dtype: names and sizes") {
  CHECK(std::string(dtype_name(DType::kBFloat16)) == "bfloat16");
  CHECK(dtype_size(DType::kBool) == 1);
  CHECK(dtype_size(DType::kFloat64) == 8);
  for (uint32_t number = 1; is_dtype(number); ++number) {
    CHECK(dtype_from_name(dtype_name(static_cast<DType>(number))) == static_cast<DType>(number));
  }
  CHECK_FALSE(dtype_from_name("float31"));
  CHECK_FALSE(is_dtype(0));
  CHECK_FALSE(is_dtype(16));
}

TEST_CASE("error: kinds and reasons") {
  Error error(ArtifactReason::kNotAnArtifact, "text");
  CHECK(error.kind() == ErrorKind::kArtifact);
  CHECK(std::string(reason_name(error.reason())) == "not_an_artifact");
  CHECK(std::string(reason_name(ArtifactReason::kWeights)) == "weights");
  CHECK(Error(ErrorKind::kDevice, "text").kind() == ErrorKind::kDevice);
}

TEST_CASE("shape: bytes, text, limits") {
  CHECK(Shape({2, 3}).bytes(DType::kInt64) == 48);
  CHECK(Shape().bytes(DType::kFloat32) == 4);
  CHECK(Shape({0, int64_t{1} << 62}).bytes(DType::kFloat32) == 0);
  CHECK(Shape({int64_t{1} << 62, int64_t{1} << 62, 0}).bytes(DType::kFloat32) == 0);
  CHECK_FALSE(Shape({0, -1}).bytes(DType::kInt8));
  CHECK_FALSE(Shape({int64_t{1} << 40, int64_t{1} << 40}).bytes(DType::kInt8));
  CHECK_FALSE(Shape({-1}).bytes(DType::kInt8));
  CHECK(Shape({2, 3}).text() == "[2, 3]");
  CHECK(Shape({2, 3}) != Shape({2, 3, 1}));
  std::vector<int64_t> ones(kMaxRank + 1, 1);
  CHECK(std::string(caught([&] { Shape(ones.data(), ones.size()); }).what()) ==
        "a tensor has at most 16 dimensions, got 17");
}

TEST_CASE("buffer: memory is aligned, shared and counted") {
  int64_t before = live_objects().storages;
  {
    Buffer buffer = Buffer::allocate(test::cpu(), DType::kFloat32, {3, 5});
    Buffer again = buffer;
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
    CHECK(again.data() == buffer.data());
    CHECK(buffer.bytes() == 60);
    CHECK(live_objects().storages == before + 1);
    Buffer empty = Buffer::allocate(test::cpu(), DType::kFloat32, {0});
    CHECK(empty.bytes() == 0);
    Buffer large = Buffer::allocate(test::cpu(), DType::kUInt8, {5 << 20});
    CHECK(reinterpret_cast<uintptr_t>(large.data()) % 4096 == 0);
  }
  CHECK(live_objects().storages == before);
}

TEST_CASE("buffer: borrowed memory keeps its owner") {
  auto owner = std::make_shared<std::vector<float>>(6);
  {
    Buffer buffer(Storage::borrow(test::cpu(), owner->data(), 24, owner), DType::kFloat32, {2, 3});
    CHECK(buffer.data() == owner->data());
    CHECK(owner.use_count() == 2);
  }
  CHECK(owner.use_count() == 1);
}

TEST_CASE("buffer: refusals") {
  auto storage = Storage::allocate(test::cpu(), 8, MemoryKind::kBuffers);
  CHECK(std::string(caught([&] { Buffer(storage, DType::kInt64, {2}); }).what()) ==
        "a buffer of int64[2]: wanted 16 bytes, got 8");
  CHECK(std::string(caught([&] { Buffer::allocate(test::cpu(), DType::kInt8, {-1}); }).what()) ==
        "a buffer of int8[-1]: wanted sizes of 0 or more that fit 63 bits in bytes");
  Error error = caught([&] { Buffer::allocate(test::cpu(), DType::kInt8, {int64_t{1} << 60}); });
  CHECK(error.kind() == ErrorKind::kDevice);
  CHECK(std::string(error.what()).find("cpu:0: wanted 1152921504606846976 bytes of memory") == 0);
}

TEST_CASE("sizes: Python's division, checked") {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  struct Row {
    SizeOp op;
    int64_t a, b, wanted;
  };
  const Row rows[] = {
      {SizeOp::kAdd, 2, 3, 5},        {SizeOp::kSub, 2, 3, -1},
      {SizeOp::kMul, -2, 3, -6},      {SizeOp::kFloorDiv, 7, 2, 3},
      {SizeOp::kFloorDiv, -7, 2, -4}, {SizeOp::kFloorDiv, 7, -2, -4},
      {SizeOp::kFloorDiv, -7, -2, 3}, {SizeOp::kCeilDiv, 7, 2, 4},
      {SizeOp::kCeilDiv, -7, 2, -3},  {SizeOp::kCeilDiv, 7, -2, -3},
      {SizeOp::kCeilDiv, -7, -2, 4},  {SizeOp::kCeilDiv, 8, 2, 4},
      {SizeOp::kMod, 7, 3, 1},        {SizeOp::kMod, -7, 3, 2},
      {SizeOp::kMod, 7, -3, -2},      {SizeOp::kMod, -7, -3, -1},
      {SizeOp::kMod, kLow, -1, 0},    {SizeOp::kFloorDiv, 5, -1, -5},
      {SizeOp::kMin, 2, 3, 2},        {SizeOp::kMax, 2, 3, 3},
  };
  for (const Row& row : rows) {
    int64_t result = 0;
    CHECK(apply(row.op, row.a, row.b, &result));
    CHECK(result == row.wanted);
  }
  int64_t result = 0;
  CHECK_FALSE(apply(SizeOp::kAdd, kHigh, 1, &result));
  CHECK_FALSE(apply(SizeOp::kSub, kLow, 1, &result));
  CHECK_FALSE(apply(SizeOp::kMul, kHigh, 2, &result));
  CHECK_FALSE(apply(SizeOp::kFloorDiv, kLow, -1, &result));
  CHECK_FALSE(apply(SizeOp::kCeilDiv, kLow, -1, &result));
  for (SizeOp op : {SizeOp::kFloorDiv, SizeOp::kCeilDiv, SizeOp::kMod}) {
    CHECK_FALSE(apply(op, 1, 0, &result));
  }
}

TEST_CASE("sizes: why one has no value") {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr Slot kLeft = 15, kRight = 16, kLast = 17;
  auto refused = [&](SizeOp op, int64_t a, int64_t b) {
    test::Patch patch;
    auto* sizes = patch.records<SizeRecord>(Section::kSizes);
    sizes[kLeft] = {SizeOp::kNumber, 0, a};
    sizes[kRight] = {SizeOp::kNumber, 0, b};
    sizes[kLast] = {op, kLeft, kRight};
    auto artifact = test::parse(patch.seal());
    return std::string(caught([&] { evaluate_sizes(*artifact, {1}); }).what());
  };
  CHECK(refused(SizeOp::kFloorDiv, kLow, -1) ==
        "size '-9223372036854775808 // -1': wanted a 64-bit number, got an overflow at batch = 1");
  CHECK(refused(SizeOp::kCeilDiv, kLow, -1).find("got an overflow") != std::string::npos);
  CHECK(refused(SizeOp::kMod, 1, 0).find("got a division by zero") != std::string::npos);
}

TEST_CASE("utf8: shortest forms, no surrogates, no NUL") {
  auto fine = [](const std::string& text) {
    return is_utf8(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  for (const char* text : {"", "tokens", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\xA7\xB5"}) {
    CHECK(fine(text));
  }
  for (const char* text : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                           "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8", "\xE2\x82", "a\xC3z"}) {
    CHECK_FALSE(fine(text));
  }
  CHECK_FALSE(fine(std::string("a\0b", 3)));
}
