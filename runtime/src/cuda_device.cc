#include "heddle/cuda_device.h"

#include <utility>

#include "heddle/cuda_graphs.h"
#include "heddle/cuda_program.h"
#include "heddle/error.h"

namespace heddle::cuda {
namespace {

// The driver's name for the default stream, which waits for all blocking streams
// (CU_STREAM_LEGACY).
constexpr uintptr_t kLegacyStream = 1;

// Ids of streams begin above that of the device's own.
constexpr uint64_t kFirstId = 1;

StreamHandle legacy_stream() { return reinterpret_cast<StreamHandle>(kLegacyStream); }

/// Whether a context that has had this error refuses all further work ("CUDA Driver API",
/// CUresult).
bool is_fatal(Result result) {
  return result == kEccUncorrectable || result == kNvlinkUncorrectable || result == kContained ||
         result == kIllegalAddress || result == kLaunchTimeout ||
         (result >= kContextIsDestroyed && result <= kAssert) ||
         (result >= kHardwareStackError && result <= kLaunchFailed) ||
         result == kTensorMemoryLeak || result == kUnknown;
}

}  // namespace

std::shared_ptr<CudaDevice> CudaDevice::open(int index) {
  static std::mutex mutex;
  static auto& opened = *new std::map<int, std::weak_ptr<CudaDevice>>;
  std::lock_guard lock(mutex);
  if (auto device = opened[index].lock()) return device;
  auto device = std::make_shared<CudaDevice>(index);
  opened[index] = device;
  return device;
}

CudaDevice::CudaDevice(int index) : context_(std::make_shared<PrimaryContext>(index)) {
  const DeviceHandle device = context_->device();
  shared_limit_ = attribute(driver(), kMaxSharedPerBlock, device);
  const DeviceAttribute axes[3] = {kMaxGridX, kMaxGridY, kMaxGridZ};
  for (int axis = 0; axis < 3; ++axis) grid_limits_[axis] = attribute(driver(), axes[axis], device);
  Current current(*context_);
  try {
    for (StreamHandle* stream : {&stream_, &copies_, &frees_}) {
      driver().check(driver().stream_create(stream, kStreamNonBlocking),
                     text() + ": cuStreamCreate");
    }
    if (attribute(driver(), kMemoryPools, device) != 0) open_pool();
  } catch (...) {
    close();
    throw;
  }
}

CudaDevice::~CudaDevice() {
  settle(nullptr);
  for (Kept& each : kept_) release(each.data, each.stream, std::move(each.after), false);
  if (driver().context_push(context_->handle()) != kSuccess) return;
  close();
  Context popped;
  driver().context_pop(&popped);
}

void CudaDevice::close() noexcept {
  for (StreamHandle stream : {stream_, copies_, frees_}) {
    if (stream == nullptr) continue;
    driver().stream_synchronize(stream);
    driver().stream_destroy(stream);
  }
  if (pool_ != nullptr) driver().pool_destroy(pool_);
}

Stream CudaDevice::stream(void* handle) {
  Current current(*context_);
  if (handle == nullptr) handle = legacy_stream();
  if (handle == stream_) return {};
  Context found = nullptr;
  unsigned long long id = 0;
  Result result = driver().stream_context(handle, &found);
  if (result == kSuccess) result = driver().stream_id(handle, &id);
  if (result != kSuccess) {
    throw Error(ErrorKind::kInput,
                "stream: wanted one of " + name() +
                    ", got one that the driver refuses: " + driver().explain(result));
  }
  if (found != context_->handle()) {
    throw Error(ErrorKind::kInput,
                "stream: wanted one of " + name() + ", got one of another " + "device or context");
  }
  const Stream stream = Stream::of(handle, id + kFirstId);
  require_running(stream);
  return stream;
}

void CudaDevice::require_running(Stream stream) const {
  Current current(*context_);
  int status = kNotCapturing;
  const Result result = driver().stream_is_capturing(queue(stream), &status);
  if (result == kSuccess && status == kNotCapturing) return;
  throw Error(ErrorKind::kInput,
              "stream: wanted one that runs what it is given, got one that is being captured" +
                  (result == kSuccess ? "" : ": " + driver().explain(result)));
}

std::shared_ptr<Event> CudaDevice::record(Stream stream) {
  Current current(*context_);
  return CudaEvent::record(*this, stream);
}

// Null where the device is lost, or where somebody captures a stream that waits for the default
// one: then the driver refuses to be asked for that ("CUDA Driver API", cuStreamIsCapturing).
std::shared_ptr<Event> CudaDevice::record_shared() noexcept {
  try {
    return record(stream(legacy_stream()));
  } catch (const Error&) {
    return nullptr;
  }
}

StreamHandle CudaDevice::stream_behind(Event& event) {
  if (event.device() == this && event.stream().handle == nullptr) return stream_;
  event.order(*this, Stream::of(frees_, kNoStream));
  return frees_;
}

void CudaDevice::synchronize(Stream stream) {
  require();
  Current current(*context_);
  check(driver().stream_synchronize(queue(stream)), "waiting for the device");
  retire();
  if (std::optional<Error> error = first_refusal(stream, nullptr)) throw Error(*error);
}

void CudaDevice::require() const {
  if (!lost_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  throw Error(ErrorKind::kDevice, loss_);
}

void CudaDevice::fail(Result result, const std::string& what) const {
  require();
  if (!is_fatal(result)) driver().check(result, text() + ": " + what);
  const std::string kernels = running_kernels();
  std::lock_guard lock(mutex_);
  if (loss_.empty()) {
    loss_ = text() + ": " +
            (kernels.empty() ? what + ": " : "one of the kernels " + kernels + " failed: ") +
            driver().explain(result) + "; the session is lost, end this process";
  }
  lost_.store(true, std::memory_order_release);
  throw Error(ErrorKind::kDevice, loss_);
}

std::vector<double> CudaDevice::replay(const std::function<void(Stream)>& enqueue, int count) {
  constexpr int kWarmUp = 2;
  require();
  Current current(*context_);
  const GraphExec graph = capture(*this, "calls", enqueue);
  std::vector<EventHandle> ends(static_cast<size_t>(count) + 1);  // of the warm-up, and of each
  std::vector<double> seconds;
  Result result = kSuccess;
  for (EventHandle& end : ends) {
    if (result == kSuccess) result = driver().event_create(&end, kEventDefault);
  }
  // The device never waits for the host between two ends: all is given before it is waited for.
  for (int number = 1 - kWarmUp; number <= count && result == kSuccess; ++number) {
    result = driver().graph_launch(graph, stream_);
    if (result == kSuccess && number >= 0) {
      result = driver().event_record(ends[static_cast<size_t>(number)], stream_);
    }
  }
  const Result waited = driver().stream_synchronize(stream_);  // what was launched may still run
  if (result == kSuccess) result = waited;
  for (size_t number = 1; number < ends.size() && result == kSuccess; ++number) {
    float milliseconds = 0;
    result = driver().event_elapsed(&milliseconds, ends[number - 1], ends[number]);
    seconds.push_back(1e-3 * static_cast<double>(milliseconds));
  }
  for (EventHandle end : ends) {
    if (end != nullptr) driver().event_destroy(end);
  }
  driver().graph_exec_destroy(graph);
  check(result, "replaying a graph");
  return seconds;
}

OwnedStream::OwnedStream(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {
  device_->require();
  Current current(*device_->context());
  StreamHandle handle = nullptr;
  device_->check(device_->driver().stream_create(&handle, kStreamNonBlocking), "making a stream");
  try {
    stream_ = device_->stream(handle);
  } catch (...) {
    device_->driver().stream_destroy(handle);
    throw;
  }
}

OwnedStream::~OwnedStream() {
  const Driver& driver = device_->driver();
  if (driver.context_push(device_->context()->handle()) != kSuccess) return;
  driver.stream_destroy(stream_.handle);
  Context popped;
  driver.context_pop(&popped);
}

std::unique_ptr<LoadedCode> CudaDevice::load(const Artifact& artifact,
                                             const ProgramRecord& program) {
  require();
  return std::make_unique<CudaProgram>(*this, artifact, program);
}

}  // namespace heddle::cuda
