#include "heddle/cuda_context.h"

#include <algorithm>

#include "heddle/error.h"

namespace heddle::cuda {
namespace {

// Blocks are made in multiples of this, so that few sizes come up.
constexpr size_t kBlock = 4096;

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

int attribute(const Driver& driver, DeviceAttribute which, DeviceHandle handle) {
  int value = 0;
  driver.check(driver.device_attribute(&value, which, handle), "cuda: cuDeviceGetAttribute");
  return value;
}

std::vector<DeviceInfo> devices() {
  const Driver& driver = Driver::get();
  std::vector<DeviceInfo> found;
  for (int index = 0; index < driver.device_count(); ++index) {
    found.push_back(describe(driver, index, find(driver, index)));
  }
  return found;
}

PrimaryContext::PrimaryContext(int index) : driver_(Driver::get()) {
  device_ = find(driver_, index);
  info_ = describe(driver_, index, device_);
  text_ = "cuda:" + std::to_string(index) + " (" + info_.name + ", compute capability " +
          std::to_string(info_.major) + "." + std::to_string(info_.minor) + ")";
  driver_.check(driver_.context_retain(&handle_, device_), text_ + ": cuDevicePrimaryCtxRetain");
}

PrimaryContext::~PrimaryContext() {
  // A lost context refuses all of this, and there is nothing better to do.
  if (driver_.context_push(handle_) == kSuccess) {
    for (EventHandle event : events_) driver_.event_destroy(event);
    for (const HostBlock& block : blocks_) driver_.host_free(block.data);
    Context popped;
    driver_.context_pop(&popped);
  }
  driver_.context_release(device_);
}

EventHandle PrimaryContext::take_event() {
  {
    std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      EventHandle event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  EventHandle event = nullptr;
  driver_.check(driver_.event_create(&event, kEventDisableTiming), text_ + ": making an event");
  return event;
}

void PrimaryContext::give_back(EventHandle event) noexcept {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

HostBlock PrimaryContext::take_block(size_t size) {
  {
    std::lock_guard lock(mutex_);
    auto found = std::find_if(blocks_.begin(), blocks_.end(),
                              [&](const HostBlock& block) { return block.size >= size; });
    if (found != blocks_.end()) {
      const HostBlock block = *found;
      blocks_.erase(found);
      return block;
    }
  }
  HostBlock block{nullptr, (size + kBlock - 1) / kBlock * kBlock};
  driver_.check(driver_.host_allocate(&block.data, block.size, kHostPortable),
                text_ + ": making " + std::to_string(block.size) + " bytes of page-locked memory");
  return block;
}

void PrimaryContext::give_back(HostBlock block) noexcept {
  std::lock_guard lock(mutex_);
  blocks_.push_back(block);
}

Current::Current(const PrimaryContext& context) : driver_(context.driver()) {
  driver_.check(driver_.context_push(context.handle()), context.text() + ": cuCtxPushCurrent");
  driver_.exchange_capture_mode(&mode_);
}

Current::~Current() {
  driver_.exchange_capture_mode(&mode_);
  Context popped;
  driver_.context_pop(&popped);
}

}  // namespace heddle::cuda
