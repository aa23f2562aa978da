// Models that share one program on a GPU, beside the fake driver of tests/runtime.

#include <dlfcn.h>

#include <atomic>
#include <thread>

#include "../support.h"
#include "heddle/cuda_device.h"
#include "heddle/live.h"

namespace heddle::test {
namespace {

constexpr const char* kRefused = "check: wanted an index inside a size of 3, got -7";

/// A number that the fake driver tells, or something that it does.
long fake(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(library != nullptr);
  return reinterpret_cast<long (*)()>(dlsym(library, name))();
}

std::shared_ptr<const Program> load(const std::shared_ptr<Device>& device) {
  return Program::load(parse(read_file(HEDDLE_GOLDEN "/check.heddle")), device);
}

Buffer on(const std::shared_ptr<Device>& device, const std::vector<float>& values) {
  Buffer buffer = Buffer::allocate(device, DType::kFloat32, {static_cast<int64_t>(values.size())});
  device->copy_from_host(buffer.data(), values.data(), values.size() * sizeof(float));
  return buffer;
}

}  // namespace

TEST_CASE("a model that goes takes no refusal of another one's call with it") {
  std::shared_ptr<Device> device = cuda::CudaDevice::open(0);
  std::shared_ptr<const Program> program = load(device);
  auto first = std::make_unique<Model>(program, std::vector<WeightSource>{});
  Model second(program, {});
  const Buffer bad = on(device, {1, -7, 3}), good = on(device, {1, 2, 3});
  second.execute({bad.view()});  // its output goes at once
  first.reset();
  CHECK(refused([&] { second.execute({good.view()}); }) == kRefused);
  second.execute({good.view()});
}

TEST_CASE("a model that goes waits for no call that begins meanwhile, and lets go of none") {
  {
    std::shared_ptr<cuda::CudaDevice> device = cuda::CudaDevice::open(0);
    std::shared_ptr<const Program> program = load(device);
    const Buffer good = on(device, {1, 2, 3});
    std::atomic<bool> done{false};
    std::thread others([&] {
      while (!done) Model(program, {});
    });
    {
      Model model(program, {});
      cuda::OwnedStream stream(device);
      for (int round = 0; round < 300; ++round) model.execute({good.view()}, stream.stream());
    }
    done = true;
    others.join();
  }
  fake("fake_catch_up");
  CHECK(fake("fake_live") == 0);
  CHECK(fake("fake_faults") == 0);
  CHECK(live_objects().events == 0);
}

}  // namespace heddle::test
