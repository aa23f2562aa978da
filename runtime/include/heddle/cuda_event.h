#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "heddle/cuda_context.h"
#include "heddle/error.h"
#include "heddle/event.h"

namespace heddle {
struct Plan;
}

namespace heddle::cuda {

class CudaDevice;
class CudaProgram;

/// What a routine's steps have to tell once they ran.
struct Report {
  const CudaProgram* program = nullptr;  ///< Which waits for its calls before it goes.
  std::shared_ptr<const Plan> plan;
  HostBlock words;  ///< Four for each step that checks, as its kernel left them; none: no data.
};

/// A point in the work of a stream of a GPU: the end of a copy, or of a call with its report.
class CudaEvent final : public Event, public std::enable_shared_from_this<CudaEvent> {
 public:
  /// Records what `stream` was given so far. `sources` are the ends of calls whose results that
  /// work has read. The context is this thread's current one. Throws a device error.
  static std::shared_ptr<CudaEvent> record(CudaDevice& device, Stream stream,
                                           std::vector<std::shared_ptr<CudaEvent>> sources = {},
                                           Report report = {});
  CudaEvent(CudaDevice& device, Stream stream, std::shared_ptr<EventObject> handle,
            std::vector<std::shared_ptr<CudaEvent>> sources, Report report);

  /// The same point without the report: who has it alone is not told what was refused.
  std::shared_ptr<CudaEvent> plain() const;

  const Device* device() const override;
  Stream stream() const override { return stream_; }
  bool reached() override;
  void synchronize() override;
  void order(Device& device, Stream stream) override;
  void hold(std::shared_ptr<void> owner) override;

  /// Keeps this among the device's work in flight.
  void watch();

  /// Waits, and throws a device error only: what was refused is for others to tell.
  void wait();

  /// Once reached: what was refused, where nobody was told yet. Somebody is then.
  std::optional<Error> take_refusal();

  /// Whether it is known that this was reached, or never will be.
  bool resolved();

  /// Whether somebody has to be told.
  bool refused();

  /// Whether this may tell of a refusal, now or later.
  bool matters();

  const CudaProgram* program() const { return program_; }

  /// Waits, and counts as reached where the device is lost.
  void finish() noexcept;

  /// Adds the names of the kernels that may still run, where they are not there yet.
  void add_kernels(std::vector<std::string>* names);

 private:
  void resolve(const Error* lost);

  const std::shared_ptr<PrimaryContext> context_;
  const std::weak_ptr<CudaDevice> device_;
  const Device* const address_;
  const Stream stream_;
  const std::shared_ptr<EventObject> handle_;
  const CudaProgram* const program_;
  std::mutex mutex_;  // of all below
  bool resolved_ = false;
  bool told_ = false;
  bool watched_ = false;
  Report report_;
  std::vector<std::shared_ptr<CudaEvent>> sources_;
  std::shared_ptr<CudaEvent> inherited_;  // the call whose refused values came in
  std::optional<Error> refusal_;
  std::vector<std::shared_ptr<void>> held_;
};

}  // namespace heddle::cuda
