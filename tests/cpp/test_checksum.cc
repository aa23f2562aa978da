#include <cstring>
#include <string>

#include "support.h"

using namespace heddle;

namespace {

// Before `main`, and before the runtime's own files have begun.
const uint64_t kEarly = checksum(std::string(1000, 'a').data(), 1000);

}  // namespace

TEST_CASE("checksum: before main") {
  CHECK(kEarly == checksum(std::string(1000, 'a').data(), 1000));
}

// Values from the reference implementation's command-line tool, `xxhsum -H3`.
TEST_CASE("checksum: known values") {
  CHECK(checksum("", 0) == 0x2D06800538D394C2);
  CHECK(checksum("a", 1) == 0xE6C632B61E964E1F);
  CHECK(checksum("abc", 3) == 0x78AF5F94892F3950);
  const char* text = "Nobody inspects the spammish repetition";
  CHECK(checksum(text, std::strlen(text)) == 0x6CB00603B5CC47E9);
}

/// Bytes of which any two neighbours differ.
test::Bytes bytes(size_t size) {
  test::Bytes data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(i * 7);
  return data;
}

// Around the sizes at which the specification goes another way, stripes and blocks.
TEST_CASE("checksum: known values of every length") {
  const std::pair<size_t, uint64_t> known[] = {
      {3, 0xC3489259E968AD9E},    {4, 0xD3D60C1519014E89},    {8, 0xB88DEE77F6BF6980},
      {9, 0x03688DCAD730D826},    {16, 0x9DA23836ADF2BE1E},   {17, 0xF34C3C9CF5A112D1},
      {32, 0x99CB9AD0F1A11FBE},   {33, 0xC077B45492D29CDE},   {64, 0x6EFB76FF16F37561},
      {65, 0x2640848E9137156B},   {96, 0x764D2D5DB92942DF},   {97, 0x077ACB7E5F4FD940},
      {128, 0x65F3C2C00FA93185},  {129, 0x28065C6EC25F5B25},  {240, 0x4917A75C0EF8EED7},
      {241, 0x541B19226F0052E8},  {256, 0xFF5A1CEFADE75BB9},  {257, 0x5C4BED20B0D2243A},
      {1024, 0xDC5ACF0B043C445B}, {1025, 0xE1D9CD946277AE26}, {4097, 0x0AF1CAF010AA20B3},
      {5000, 0x6ABE8BE5ABCB2760},
  };
  const test::Bytes data = bytes(5000);
  for (const auto& [size, value] : known) CHECK(checksum(data.data(), size) == value);
}

TEST_CASE("checksum: any split gives the same value") {
  const test::Bytes data = bytes(2500);
  for (size_t size : {0, 1, 31, 32, 33, 64, 200, 240, 256, 257, 320, 1024, 1025, 2500}) {
    uint64_t wanted = checksum(data.data(), size);
    for (size_t first = 0; first <= size; ++first) {
      Checksum sum;
      sum.update(data.data(), first);
      sum.update(data.data() + first, (size - first) / 2);
      sum.update(data.data() + first + (size - first) / 2, (size - first + 1) / 2);
      REQUIRE(sum.value() == wanted);
    }
  }
}
