#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/cuda_driver.h"
#include "heddle/device.h"

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

/// One GPU: its primary context, one stream that carries all work of Heddle, and its memory.
class CudaDevice final : public heddle::Device {
 public:
  /// The device with this index; the same object while anyone holds it. Throws a device error.
  static std::shared_ptr<CudaDevice> open(int index);
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  int index() const override { return info_.index; }
  void* allocate(size_t size) override;
  void release(void* data, size_t size) noexcept override;
  void copy_from_host(void* target, const void* source, size_t size) override;
  void copy_to_host(void* target, const void* source, size_t size) override;
  void synchronize(Stream stream) override;
  std::vector<double> replay(const std::function<void(Stream)>& enqueue, int count) override;
  std::unique_ptr<LoadedCode> load(const Artifact& artifact, const ProgramRecord& program) override;

  /// Makes this device's stream wait for what `other` has been given so far, and the reverse.
  void wait_for(Stream other);
  void make_wait(Stream other);

  const DeviceInfo& info() const { return info_; }
  const Driver& driver() const { return driver_; }
  Stream stream() const { return stream_; }
  Context context() const { return context_; }
  const int (&grid_limits() const)[3] { return grid_limits_; }
  int shared_limit() const { return shared_limit_; }

  /// `"cuda:0 (NVIDIA H200, compute capability 9.0)"`.
  std::string text() const;

 private:
  explicit CudaDevice(int index);
  void order(Stream first, Stream second);

  const Driver& driver_;
  DeviceInfo info_;
  DeviceHandle handle_ = 0;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  bool pools_ = false;
  int grid_limits_[3] = {};
  int shared_limit_ = 0;
};

/// Makes a device's context the current one of this thread, for a scope.
class Current {
 public:
  explicit Current(const CudaDevice& device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
};

}  // namespace heddle::cuda
