#include <cstring>

#include "support.h"

using namespace heddle;

// Values from the reference implementation's command-line tool, `xxhsum -H3`.
TEST_CASE("checksum: known values") {
  CHECK(checksum("", 0) == 0x2D06800538D394C2);
  CHECK(checksum("a", 1) == 0xE6C632B61E964E1F);
  CHECK(checksum("abc", 3) == 0x78AF5F94892F3950);
  const char* text = "Nobody inspects the spammish repetition";
  CHECK(checksum(text, std::strlen(text)) == 0x6CB00603B5CC47E9);
}

TEST_CASE("checksum: any split gives the same value") {
  test::Bytes data(200);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7);
  for (size_t size : {0, 1, 31, 32, 33, 64, 200}) {
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
