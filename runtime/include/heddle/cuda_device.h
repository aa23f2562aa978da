#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/cuda_context.h"
#include "heddle/cuda_event.h"
#include "heddle/device.h"

namespace heddle::cuda {

/// An id for streams that are known inside only.
constexpr uint64_t kNoStream = ~uint64_t{0};

/// One GPU: its memory, and streams of its own. Work of Heddle runs on `stream` where the caller
/// has none; copies from and to the host on a stream that never waits for anything else; memory
/// that several streams have used is freed on a third.
class CudaDevice final : public heddle::Device, public std::enable_shared_from_this<CudaDevice> {
 public:
  /// The device with this index; the same object while anyone holds it. Throws a device error.
  static std::shared_ptr<CudaDevice> open(int index);
  explicit CudaDevice(int index);  // use `open`
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  int index() const override { return info().index; }
  void* allocate(size_t size) override;
  void* allocate(size_t size, Stream stream) override;
  void release(void* data, Stream stream, std::vector<std::shared_ptr<Event>> after,
               bool handed_out) noexcept override;
  void copy_from_host(void* target, const void* source, size_t size) override;
  void copy_to_host(void* target, const void* source, size_t size) override;
  void copy(const Storage& source, const Storage& target, size_t size) override;
  void clear(void* data, size_t size, Stream stream) override;
  Stream stream(void* handle) override;
  std::shared_ptr<Event> record(Stream stream) override;
  void synchronize(Stream stream) override;
  MemoryCounters& memory() override { return memory_; }
  size_t reserved() override;
  std::vector<double> replay(const std::function<void(Stream)>& enqueue, int count) override;
  std::unique_ptr<LoadedCode> load(const Artifact& artifact, const ProgramRecord& program) override;

  /// The index of the GPU whose memory this is, or nothing where it is no GPU's.
  std::optional<int> owner(const void* data) const;

  /// The driver's handle of a stream.
  StreamHandle queue(Stream stream) const {
    return stream.handle == nullptr ? stream_ : stream.handle;
  }

  /// A stream that lives as long as the device and runs behind `event`.
  StreamHandle stream_behind(Event& event);

  /// Throws the device error `what` where `result` is none. A fault that the context does not
  /// survive names the kernels that may have caused it, and from then on every call throws it.
  void check(Result result, const std::string& what) const {
    if (result != kSuccess) fail(result, what);
  }

  /// Throws where the device is lost.
  void require() const;

  /// Throws an input error where `stream` is being captured: a call's end would never come.
  void require_running(Stream stream) const;

  /// Remembers work in flight, until `retire` finds that it is done.
  void watch(std::shared_ptr<CudaEvent> event);
  void retire();

  /// Throws what a call of `program` on `stream` has refused, where its outputs are gone and nobody
  /// was told.
  void raise_refusal(const CudaProgram& program, Stream stream);

  /// Waits for the work in flight of `program`, or null: for all. Throws nothing.
  void settle(const CudaProgram* program) noexcept;

  /// Forgets what calls of `program` have refused, which goes.
  void forget(const CudaProgram& program) noexcept;

  const DeviceInfo& info() const { return context_->info(); }
  const Driver& driver() const { return context_->driver(); }
  const std::shared_ptr<PrimaryContext>& context() const { return context_; }
  const std::string& text() const { return context_->text(); }
  const int (&grid_limits() const)[3] { return grid_limits_; }
  int shared_limit() const { return shared_limit_; }

 private:
  /// Memory that was handed out and has to wait until others' work can be recorded.
  struct Kept {
    void* data;
    Stream stream;
    std::vector<std::shared_ptr<Event>> after;
  };

  void open_pool();
  void close() noexcept;
  std::shared_ptr<Event> record_shared() noexcept;
  Result try_allocate(Address* address, size_t size, StreamHandle stream) const;
  void* allocate_on(size_t size, StreamHandle stream);
  void share_pool(const CudaDevice& reader);
  std::optional<Error> first_refusal(Stream stream, const CudaProgram* program);
  [[noreturn]] void fail(Result result, const std::string& what) const;
  std::string running_kernels() const;
  bool is_over(CudaEvent& event) const;

  std::shared_ptr<PrimaryContext> context_;
  StreamHandle stream_ = nullptr;
  StreamHandle copies_ = nullptr;
  StreamHandle frees_ = nullptr;
  MemoryPool pool_ = nullptr;  // null: this device has none
  MemoryCounters memory_;
  int grid_limits_[3] = {};
  int shared_limit_ = 0;
  mutable std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;  // of all below
  mutable std::string loss_;
  std::map<uint64_t, std::deque<std::shared_ptr<CudaEvent>>> in_flight_;  // by stream
  std::vector<std::shared_ptr<CudaEvent>> refused_;                       // and nobody was told
  std::vector<Kept> kept_;
  std::set<int> readers_;  // devices that may read the pool
};

/// A stream that goes with this object; the work that it was given does not.
class OwnedStream {
 public:
  /// Throws a device error.
  explicit OwnedStream(std::shared_ptr<CudaDevice> device);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  const std::shared_ptr<CudaDevice>& device() const { return device_; }
  Stream stream() const { return stream_; }

 private:
  std::shared_ptr<CudaDevice> device_;
  Stream stream_;
};

}  // namespace heddle::cuda
