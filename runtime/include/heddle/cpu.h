#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/device.h"
#include "heddle/thread_pool.h"

namespace heddle {

/// The architectures of CPU code, best first.
constexpr const char* kCpuArchs[] = {"sapphirerapids", "cooperlake", "x86-64-v4", "x86-64-v3"};

/// Features that `arch` needs and this CPU (or its operating system) lacks, such as `"avx512bw"`;
/// empty where its code runs here. An unknown arch lacks itself.
std::vector<std::string> missing_features(std::string_view arch);

/// The host: memory, and code that runs on a thread pool. Index 0.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const ThreadPoolOptions& options = {});

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  int index() const override { return 0; }
  using Device::allocate;
  void* allocate(size_t size) override;
  void release(void* data, Stream, std::vector<std::shared_ptr<Event>>, bool) noexcept override;
  void copy_from_host(void* target, const void* source, size_t size) override;
  void copy_to_host(void* target, const void* source, size_t size) override;
  void copy(const Storage& source, const Storage& target, size_t size) override;
  void clear(void* data, size_t size, Stream) override;
  void synchronize(Stream) override {}

  /// That of all CPU devices together: they share the machine's memory.
  MemoryCounters& memory() override;

  std::unique_ptr<LoadedCode> load(const Artifact& artifact, const ProgramRecord& program) override;

  int threads() const { return pool_->threads(); }

 private:
  std::shared_ptr<ThreadPool> pool_;
};

}  // namespace heddle
