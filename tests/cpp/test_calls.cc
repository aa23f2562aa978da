// Calls as a C++ program writes them.

#include <array>
#include <cstring>
#include <functional>
#include <string>

#include "heddle/safetensors.h"
#include "support.h"

using namespace heddle;
using test::refused;
using test::Tiny;

namespace {

/// Inputs and outputs of the tiny artifact, as a user has them.
struct Values {
  std::vector<float> x = {1, 2, 3, 4}, shifted = std::vector<float>(4);
  const std::vector<int64_t> indices = {2};
  std::vector<int8_t> pairs = {0, 0};
  std::array<float, 4> same{};

  TensorView in[3] = {host_view(x.data(), {1, 4}), host_view(indices.data(), {1}),
                      host_view(pairs.data(), {2})};
  std::array<TensorView, 2> out = {host_view(shifted.data(), {1, 4}), host_view(same.data(), {4})};

  void check() {
    CHECK(shifted == std::vector<float>{211.5, 223.5, 235.5, 247.5});
    shifted.assign(4, 0);
  }
};

}  // namespace

TEST_CASE("calls: views in a list, an array or a vector") {
  auto model = test::tiny_model();
  Values values;
  const auto& [x, indices, pairs] = values.in;
  model->execute({x, indices, pairs}, {values.out[0], values.out[1]});
  values.check();
  model->execute({&values.in[0], 3}, {&values.out[0], 2});
  values.check();
  model->execute(values.in, values.out);
  values.check();
  const std::vector<TensorView> in(values.in, values.in + 3), out = {values.out[0], values.out[1]};
  model->execute(in, out);
  values.check();
  const std::vector<Buffer> made = model->execute({x, indices, pairs});
  CHECK(static_cast<const float*>(made[0].data())[3] == 247.5);
}

TEST_CASE("calls: empty braces are outputs, and no stream") {
  auto model = test::tiny_model();
  Values values;
  const TensorView &x = values.in[0], &indices = values.in[1], &pairs = values.in[2];
  CHECK(refused([&] { model->execute({x, indices, pairs}, {}); }) ==
        "execute: wanted 2 outputs (shifted, same), got 0");
  model->execute({x, indices, pairs}, {values.out[0], values.out[1]}, {});
  values.check();
  CHECK(model->execute({x, indices, pairs}, Stream()).size() == 2);
}

TEST_CASE("calls: buffers are views of themselves") {
  auto model = test::tiny_model();
  Values values;
  Buffer x = Buffer::allocate(test::cpu(), DType::kFloat32, {1, 4});
  Buffer shifted = Buffer::allocate(test::cpu(), DType::kFloat32, {1, 4});
  std::memcpy(x.data(), values.x.data(), x.bytes());
  model->execute({x, values.in[1], values.in[2]}, {shifted, values.out[1]});
  CHECK(static_cast<const float*>(shifted.data())[0] == 211.5);
}

TEST_CASE("calls: what one model gives is what the next one takes") {
  auto model = test::tiny_model();
  Values values;
  const auto& [x, indices, pairs] = values.in;
  const std::vector<Buffer> first = model->execute({x, indices, pairs});
  CHECK(views(first).size() == 2);
  CHECK(views(first)[0].data == first[0].data());
  const Buffer again[] = {first[0]};
  CHECK(views(again)[0].storage == first[0].storage().get());
  CHECK(refused([&] { model->execute(views(first)); }) ==
        "execute: wanted 3 inputs (x, indices, pairs), got 2");
}

TEST_CASE("calls: memory of a device by way of its own class") {
  CpuDevice device({1, false, 0});
  void* data = device.allocate(64, Stream());
  CHECK(data != nullptr);
  device.release(data, {}, {}, false);
}

TEST_CASE("calls: the dtype of a C++ number") {
  CHECK(dtype_of<bool>() == DType::kBool);
  CHECK(dtype_of<signed char>() == DType::kInt8);
  CHECK(dtype_of<int16_t>() == DType::kInt16);
  CHECK(dtype_of<int>() == DType::kInt32);
  CHECK(dtype_of<long long>() == DType::kInt64);
  CHECK(dtype_of<uint8_t>() == DType::kUInt8);
  CHECK(dtype_of<unsigned short>() == DType::kUInt16);
  CHECK(dtype_of<uint32_t>() == DType::kUInt32);
  CHECK(dtype_of<uint64_t>() == DType::kUInt64);
  CHECK(dtype_of<float>() == DType::kFloat32);
  CHECK(dtype_of<double>() == DType::kFloat64);
}

TEST_CASE("calls: memory at no multiple of its element") {
  auto model = test::tiny_model();
  Tiny tiny(1);
  std::vector<char> bytes(64);
  char* odd = bytes.data() + 1;
  tiny.inputs[0].data = odd;
  CHECK(refused([&] { model->execute(tiny.in(), tiny.out()); }) ==
        "input 'x': wanted memory at a multiple of 4 bytes, got 1 beyond one");
  tiny.inputs[0].data = tiny.x.data();
  tiny.outputs[1].data = odd + 1;
  CHECK(refused([&] { model->execute(tiny.in(), tiny.out()); }) ==
        "output 'same': wanted memory at a multiple of 4 bytes, got 2 beyond one");
  tiny.outputs[1].data = tiny.same.data();
  tiny.inputs[2].data = odd;  // of bytes
  model->execute(tiny.in(), tiny.out());
}

TEST_CASE("calls: a number that is no dtype") {
  const std::string wanted = "dtype: wanted a number from 1 to 15, got ";
  CHECK(refused([] { Buffer::allocate(test::cpu(), static_cast<DType>(99), {3}); }) ==
        wanted + "99");
  Tiny tiny(1);
  tiny.inputs[0].dtype = static_cast<DType>(0);
  CHECK(refused([&] { test::tiny_model()->execute(tiny.in()); }) == wanted + "0");
}

TEST_CASE("calls: weights of a file keep it") {
  std::vector<WeightSource> weights =
      weights_from(Safetensors::open(HEDDLE_GOLDEN "/tiny.safetensors"));
  Model model(Program::load(test::parse(test::tiny_bytes()), test::cpu()), weights);
  Values values;
  model.execute(values.in, values.out);
  values.check();
  CHECK(weights[0].owner != nullptr);
  CHECK(refused([] { weights_from(nullptr); }).rfind("weights: file: wanted one", 0) == 0);
}
