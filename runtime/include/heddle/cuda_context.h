#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "heddle/cuda_driver.h"

namespace heddle::cuda {

/// What a GPU is, as its driver tells.
struct DeviceInfo {
  int index;
  std::string name;
  int major;  ///< Compute capability.
  int minor;
  size_t memory;  ///< Bytes.
  int multiprocessors;
  int l2_bytes;
};

/// Every GPU of this machine. Throws a device error where there is no usable driver.
std::vector<DeviceInfo> devices();

/// The value of an attribute of a device. Throws a device error.
int attribute(const Driver& driver, DeviceAttribute which, DeviceHandle handle);

/// Page-locked host memory, into which a device copies while the host goes on.
struct HostBlock {
  void* data = nullptr;
  size_t size = 0;
};

/// The primary context of one GPU, and what is used in it again and again: events, page-locked
/// memory. Devices and events share it.
class PrimaryContext {
 public:
  explicit PrimaryContext(int index);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  const Driver& driver() const { return driver_; }
  const DeviceInfo& info() const { return info_; }
  DeviceHandle device() const { return device_; }
  Context handle() const { return handle_; }

  /// `"cuda:0 (NVIDIA H200, compute capability 9.0)"`.
  const std::string& text() const { return text_; }

  /// An event without a time; give it back. The context is this thread's current one.
  EventHandle take_event();
  void give_back(EventHandle event) noexcept;

  HostBlock take_block(size_t size);
  void give_back(HostBlock block) noexcept;

 private:
  const Driver& driver_;
  DeviceInfo info_;
  DeviceHandle device_ = 0;
  Context handle_ = nullptr;
  std::string text_;
  std::mutex mutex_;
  std::vector<EventHandle> events_;
  std::vector<HostBlock> blocks_;
};

/// Makes a context the current one of this thread, for a scope. What another thread captures
/// meanwhile is its own matter: such a capture bars no call of this one, and is not spoilt by it.
class Current {
 public:
  explicit Current(const PrimaryContext& context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kCaptureThreadLocal;  // and the thread's own one meanwhile
};

}  // namespace heddle::cuda
