#include <immintrin.h>

#include "heddle/model.h"
#include "support.h"

using namespace heddle;
using namespace heddle::test;

TEST_CASE("float mode: a caller's changes no result, and stays") {
  constexpr unsigned kFlushes = 0x8040, kRoundsDown = 0x2000;
  static const float kWeight[4] = {-0.5f, -10.5f, -20.5f, -30.5f};  // less the artifact's numbers
  Model model(Program::load(parse(tiny_bytes()), cpu()),
              {{"weight", DType::kFloat32, {4}, kWeight, nullptr}});
  Tiny tiny(1);
  tiny.x[0] = 1e-40f;  // has no normal form
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushes | kRoundsDown);
  model.execute(tiny.in(), tiny.out());
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(tiny.shifted[0] == 1e-40f);
  CHECK(after == (before | kFlushes | kRoundsDown));
}
