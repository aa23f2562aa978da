#include "heddle/buffer.h"
#include "heddle/cuda_device.h"
#include "heddle/error.h"

namespace heddle::cuda {
namespace {

Address address(const void* data) { return reinterpret_cast<Address>(data); }

bool same_stream(const Device* device, const std::vector<std::shared_ptr<Event>>& events) {
  for (const std::shared_ptr<Event>& event : events) {
    if (event->device() != device || event->stream().handle != nullptr) return false;
  }
  return true;
}

}  // namespace

void CudaDevice::open_pool() {
  PoolProperties properties{};
  properties.allocation = kAllocationPinned;
  properties.location = {kLocationDevice, context_->device()};
  const std::string where = text() + ": making a memory pool";
  driver().check(driver().pool_create(&pool_, &properties), where);
  // What is freed stays with the pool, until some allocation fails: to give it back to the driver
  // would stop the device. No allocation waits for another stream's work: copies from the host
  // would wait for kernels.
  uint64_t everything = ~uint64_t{0};
  int never = 0;
  driver().check(driver().pool_set(pool_, kPoolReleaseThreshold, &everything), where);
  driver().check(driver().pool_set(pool_, kPoolInternalOrder, &never), where);
}

Result CudaDevice::try_allocate(Address* address, size_t size, StreamHandle stream) const {
  return pool_ != nullptr ? driver().memory_from_pool(address, size, pool_, stream)
                          : driver().memory_allocate(address, size);
}

void* CudaDevice::allocate_on(size_t size, StreamHandle stream) {
  Address memory = 0;
  Result result = try_allocate(&memory, size, stream);
  if (result == kOutOfMemory && pool_ != nullptr) {
    // What was freed may still be in use by work in flight; then it goes back to the driver.
    for (StreamHandle queued : {stream_, frees_}) driver().stream_synchronize(queued);
    driver().pool_trim(pool_, 0);
    result = try_allocate(&memory, size, stream);
  }
  if (result == kOutOfMemory) {
    size_t free = 0, total = 0;
    driver().memory_info(&free, &total);
    throw Error(ErrorKind::kDevice, text() + ": wanted " + std::to_string(size) + " bytes, " +
                                        std::to_string(free) + " of " + std::to_string(total) +
                                        " are free, " + std::to_string(memory_.live()) +
                                        " are in use by Heddle: " + driver().explain(result));
  }
  check(result, "allocating " + std::to_string(size) + " bytes");
  return reinterpret_cast<void*>(memory);
}

void* CudaDevice::allocate(size_t size) {
  if (size == 0) return nullptr;
  require();
  Current current(*context_);
  void* memory = allocate_on(size, copies_);
  if (pool_ != nullptr) check(driver().stream_synchronize(copies_), "allocating memory");
  return memory;
}

void* CudaDevice::allocate(size_t size, Stream stream) {
  if (size == 0) return nullptr;
  require();
  Current current(*context_);
  return allocate_on(size, queue(stream));
}

void CudaDevice::release(void* data, Stream stream, std::vector<std::shared_ptr<Event>> after,
                         bool handed_out) noexcept {
  if (handed_out) {
    if (std::shared_ptr<Event> event = record_shared()) {
      after.push_back(std::move(event));
    } else if (!lost_.load(std::memory_order_acquire)) {
      std::lock_guard lock(mutex_);
      kept_.push_back({data, stream, std::move(after)});
      return;
    }
  }
  if (data == nullptr || driver().context_push(context_->handle()) != kSuccess) return;
  const bool ours = pool_ != nullptr && same_stream(this, after);
  const StreamHandle last = after.empty() ? queue(stream) : ours ? stream_ : frees_;
  for (const std::shared_ptr<Event>& event : after) {
    if (ours) break;
    auto& use = static_cast<CudaEvent&>(*event);
    if (pool_ == nullptr) {
      use.finish();
      continue;
    }
    try {
      use.order(*this,
                Stream::of(frees_, kNoStream));  // its stream may be gone by now, the event is not
    } catch (const Error&) {
      use.finish();
    }
  }
  if (pool_ != nullptr) {
    driver().memory_free_async(address(data), last);
  } else {
    driver().memory_free(address(data));
  }
  Context popped;
  driver().context_pop(&popped);
}

size_t CudaDevice::reserved() {
  if (pool_ == nullptr) return memory_.live();
  Current current(*context_);
  uint64_t bytes = 0;
  check(driver().pool_get(pool_, kPoolReserved, &bytes), "asking for the pool's size");
  return bytes;
}

void CudaDevice::copy_from_host(void* target, const void* source, size_t size) {
  if (size == 0) return;
  require();
  Current current(*context_);
  const std::string what = "copying " + std::to_string(size) + " bytes from the host";
  check(driver().copy_to_device(address(target), source, size, copies_), what);
  check(driver().stream_synchronize(copies_), what);
}

void CudaDevice::copy_to_host(void* target, const void* source, size_t size) {
  if (size == 0) return;
  require();
  Current current(*context_);
  const std::string what = "copying " + std::to_string(size) + " bytes to the host";
  check(driver().copy_to_host(target, address(source), size, copies_), what);
  check(driver().stream_synchronize(copies_), what);
}

void CudaDevice::copy(const Storage& source, const Storage& target, size_t size) {
  require();
  Current current(*context_);
  retire();
  const Stream stream;
  source.uses()->order_read(*this, stream);
  target.uses()->order_write(*this, stream);
  auto& other = static_cast<CudaDevice&>(*source.device());
  const std::string what = "copying " + std::to_string(size) + " bytes from " + other.name();
  if (size > 0 && &other == this) {
    check(driver().copy_on_device(address(target.data()), address(source.data()), size, stream_),
          what);
  } else if (size > 0) {
    other.share_pool(*this);
    check(driver().copy_from_peer(address(target.data()), context_->handle(),
                                  address(source.data()), other.context_->handle(), size, stream_),
          what);
  }
  std::vector<std::shared_ptr<CudaEvent>> sources;
  auto written = std::static_pointer_cast<CudaEvent>(source.uses()->written());
  if (written != nullptr && written->matters()) sources.push_back(std::move(written));
  const bool follows = !sources.empty();
  auto event = CudaEvent::record(*this, stream, std::move(sources));
  if (follows) event->watch();  // Until it is over: copies of copies would be a chain without end.
  source.uses()->note_read(event);
  target.uses()->note_write(event);
  // Nothing may ever look for the end of what keeps another's object alive; of calls, models do.
  if (source.borrowed()) event->wait();
}

void CudaDevice::share_pool(const CudaDevice& reader) {
  std::lock_guard lock(mutex_);
  if (pool_ == nullptr || readers_.count(reader.index()) != 0) return;
  int possible = 0;
  driver().check(driver().can_access(&possible, reader.context_->device(), context_->device()),
                 text() + ": asking for peer access");
  if (possible != 0) {  // else the driver copies through the host
    const PoolAccess access{{kLocationDevice, reader.context_->device()}, kAccessReadWrite};
    driver().check(driver().pool_access(pool_, &access, 1),
                   text() + ": letting " + reader.name() + " read the memory pool");
  }
  readers_.insert(reader.index());
}

void CudaDevice::clear(void* data, size_t size, Stream stream) {
  if (size == 0) return;
  Current current(*context_);
  check(driver().fill_bytes(address(data), 0, size, queue(stream)), "clearing memory");
}

std::optional<int> CudaDevice::owner(const void* data) const {
  Current current(*context_);
  unsigned type = 0;
  int index = 0;
  if (driver().pointer_attribute(&type, kPointerMemoryType, address(data)) != kSuccess ||
      type == kHostMemory ||
      driver().pointer_attribute(&index, kPointerDevice, address(data)) != kSuccess) {
    return std::nullopt;
  }
  return index;
}

}  // namespace heddle::cuda
