#include "heddle/cuda_device.h"

#include <map>
#include <mutex>

#include "heddle/cuda_graphs.h"
#include "heddle/cuda_program.h"
#include "heddle/error.h"

namespace heddle::cuda {
namespace {

Address address(const void* data) { return reinterpret_cast<Address>(data); }

int attribute(const Driver& driver, DeviceAttribute which, DeviceHandle handle) {
  int value = 0;
  driver.check(driver.device_attribute(&value, which, handle), "cuda: cuDeviceGetAttribute");
  return value;
}

DeviceInfo describe(const Driver& driver, int index, DeviceHandle handle) {
  DeviceInfo info{};
  char name[256] = {};
  info.index = index;
  driver.check(driver.device_name(name, sizeof name - 1, handle), "cuda: cuDeviceGetName");
  info.name = name;
  driver.check(driver.device_memory(&info.memory, handle), "cuda: cuDeviceTotalMem");
  info.major = attribute(driver, kCapabilityMajor, handle);
  info.minor = attribute(driver, kCapabilityMinor, handle);
  info.multiprocessors = attribute(driver, kMultiprocessors, handle);
  info.l2_bytes = attribute(driver, kL2Bytes, handle);
  return info;
}

DeviceHandle find(const Driver& driver, int index) {
  if (index < 0 || index >= driver.device_count()) {
    throw Error(ErrorKind::kDevice, "cuda:" + std::to_string(index) + ": wanted a device below " +
                                        std::to_string(driver.device_count()) +
                                        ", which is how many the driver has");
  }
  DeviceHandle handle = 0;
  driver.check(driver.device_get(&handle, index), "cuda:" + std::to_string(index));
  return handle;
}

}  // namespace

std::vector<DeviceInfo> devices() {
  const Driver& driver = Driver::get();
  std::vector<DeviceInfo> found;
  for (int index = 0; index < driver.device_count(); ++index) {
    found.push_back(describe(driver, index, find(driver, index)));
  }
  return found;
}

Current::Current(const CudaDevice& device) : driver_(device.driver()) {
  driver_.check(driver_.context_push(device.context()), device.text() + ": cuCtxPushCurrent");
}

Current::~Current() {
  Context popped;
  driver_.context_pop(&popped);
}

std::shared_ptr<CudaDevice> CudaDevice::open(int index) {
  static std::mutex mutex;
  static auto& opened = *new std::map<int, std::weak_ptr<CudaDevice>>;
  std::lock_guard lock(mutex);
  if (auto device = opened[index].lock()) return device;
  std::shared_ptr<CudaDevice> device(new CudaDevice(index));
  opened[index] = device;
  return device;
}

CudaDevice::CudaDevice(int index) : driver_(Driver::get()) {
  handle_ = find(driver_, index);
  info_ = describe(driver_, index, handle_);
  pools_ = attribute(driver_, kMemoryPools, handle_) != 0;
  shared_limit_ = attribute(driver_, kMaxSharedPerBlock, handle_);
  const DeviceAttribute axes[3] = {kMaxGridX, kMaxGridY, kMaxGridZ};
  for (int axis = 0; axis < 3; ++axis) grid_limits_[axis] = attribute(driver_, axes[axis], handle_);
  driver_.check(driver_.context_retain(&context_, handle_), text() + ": cuDevicePrimaryCtxRetain");
  try {
    Current current(*this);
    driver_.check(driver_.stream_create(&stream_, kStreamNonBlocking), text() + ": cuStreamCreate");
  } catch (...) {
    driver_.context_release(handle_);
    throw;
  }
}

CudaDevice::~CudaDevice() {
  // A lost context refuses all of this, and there is nothing better to do.
  if (driver_.context_push(context_) == kSuccess) {
    driver_.stream_destroy(stream_);
    Context popped;
    driver_.context_pop(&popped);
  }
  driver_.context_release(handle_);
}

std::string CudaDevice::text() const {
  return name() + " (" + info_.name + ", compute capability " + std::to_string(info_.major) + "." +
         std::to_string(info_.minor) + ")";
}

void* CudaDevice::allocate(size_t size) {
  if (size == 0) return nullptr;
  Current current(*this);
  Address memory = 0;
  Result result = pools_ ? driver_.memory_allocate_async(&memory, size, stream_)
                         : driver_.memory_allocate(&memory, size);
  driver_.check(result, text() + ": allocating " + std::to_string(size) + " bytes");
  return reinterpret_cast<void*>(memory);
}

void CudaDevice::release(void* data, size_t) noexcept {
  if (data == nullptr || driver_.context_push(context_) != kSuccess) return;
  // The default stream waits for the work of the user's own (blocking) streams, which may still
  // read the memory; Heddle's own work has ended before its caller could drop it.
  if (pools_) {
    driver_.memory_free_async(address(data), nullptr);
  } else {
    driver_.memory_free(address(data));
  }
  Context popped;
  driver_.context_pop(&popped);
}

void CudaDevice::copy_from_host(void* target, const void* source, size_t size) {
  if (size == 0) return;
  Current current(*this);
  driver_.check(driver_.copy_to_device(address(target), source, size, stream_),
                text() + ": copying " + std::to_string(size) + " bytes from the host");
  synchronize(stream_);
}

void CudaDevice::copy_to_host(void* target, const void* source, size_t size) {
  if (size == 0) return;
  Current current(*this);
  driver_.check(driver_.copy_to_host(target, address(source), size, stream_),
                text() + ": copying " + std::to_string(size) + " bytes to the host");
  synchronize(stream_);
}

void CudaDevice::synchronize(Stream stream) {
  Current current(*this);
  Stream queue = stream == nullptr ? stream_ : stream;
  driver_.check(driver_.stream_synchronize(queue),
                text() + ": waiting for the device (its context is lost: end this process)");
}

std::vector<double> CudaDevice::replay(const std::function<void(Stream)>& enqueue, int count) {
  constexpr int kWarmUp = 2;
  Current current(*this);
  const std::string where = text() + ": replaying a graph";
  const GraphExec graph = capture(*this, "calls", enqueue);
  Event begin = nullptr, end = nullptr;
  std::vector<double> seconds;
  Result result = driver_.event_create(&begin, kEventDefault);
  if (result == kSuccess) result = driver_.event_create(&end, kEventDefault);
  for (int number = 0; number < kWarmUp + count && result == kSuccess; ++number) {
    float milliseconds = 0;
    result = driver_.event_record(begin, stream_);
    if (result == kSuccess) result = driver_.graph_launch(graph, stream_);
    if (result == kSuccess) result = driver_.event_record(end, stream_);
    if (result == kSuccess) result = driver_.stream_synchronize(stream_);
    if (result == kSuccess) result = driver_.event_elapsed(&milliseconds, begin, end);
    if (number >= kWarmUp) seconds.push_back(1e-3 * static_cast<double>(milliseconds));
  }
  if (result != kSuccess) driver_.stream_synchronize(stream_);  // a launch may still run
  for (Event event : {begin, end}) {
    if (event != nullptr) driver_.event_destroy(event);
  }
  driver_.graph_exec_destroy(graph);
  driver_.check(result, where);
  return seconds;
}

void CudaDevice::wait_for(Stream other) { order(other, stream_); }

void CudaDevice::make_wait(Stream other) { order(stream_, other); }

void CudaDevice::order(Stream first, Stream second) {
  if (first == second) return;
  Current current(*this);
  const std::string where = text() + ": ordering two streams";
  Event event = nullptr;
  driver_.check(driver_.event_create(&event, kEventDisableTiming), where);
  Result result = driver_.event_record(event, first);
  if (result == kSuccess) result = driver_.stream_wait_event(second, event, 0);
  driver_.event_destroy(event);
  driver_.check(result, where);
}

std::unique_ptr<LoadedCode> CudaDevice::load(const Artifact& artifact,
                                             const ProgramRecord& program) {
  return std::make_unique<CudaProgram>(*this, artifact, program);
}

}  // namespace heddle::cuda
