#include "heddle/cuda_event.h"

#include <utility>

#include "heddle/cuda_device.h"
#include "heddle/cuda_program.h"
#include "heddle/program.h"

namespace heddle::cuda {

std::shared_ptr<CudaEvent> CudaEvent::record(CudaDevice& device, Stream stream,
                                             std::vector<std::shared_ptr<CudaEvent>> sources,
                                             Report report) {
  const std::shared_ptr<PrimaryContext>& context = device.context();
  std::shared_ptr<EventObject> handle(context->take_event(),
                                      [context](EventHandle event) { context->give_back(event); });
  device.check(device.driver().event_record(handle.get(), device.queue(stream)),
               "recording an event");
  return std::make_shared<CudaEvent>(device, stream, std::move(handle), std::move(sources),
                                     std::move(report));
}

CudaEvent::CudaEvent(CudaDevice& device, Stream stream, std::shared_ptr<EventObject> handle,
                     std::vector<std::shared_ptr<CudaEvent>> sources, Report report)
    : context_(device.context()),
      device_(device.weak_from_this()),
      address_(&device),
      stream_(stream),
      handle_(std::move(handle)),
      program_(report.program),
      report_(std::move(report)),
      sources_(std::move(sources)) {}

std::shared_ptr<CudaEvent> CudaEvent::plain() const {
  auto device = device_.lock();
  return std::make_shared<CudaEvent>(*device, stream_, handle_,
                                     std::vector<std::shared_ptr<CudaEvent>>(),
                                     Report{program_, nullptr, {}});
}

const Device* CudaEvent::device() const { return address_; }

bool CudaEvent::reached() {
  {
    std::lock_guard lock(mutex_);
    if (resolved_) return true;
  }
  Current current(*context_);
  const Result result = context_->driver().event_query(handle_.get());
  if (result == kNotReady) return false;
  if (auto device = device_.lock()) device->check(result, "asking for an event");
  resolve(nullptr);
  return true;
}

void CudaEvent::wait() {
  {
    std::lock_guard lock(mutex_);
    if (resolved_) return;
  }
  Current current(*context_);
  const Result result = context_->driver().event_synchronize(handle_.get());
  if (auto device = device_.lock()) device->check(result, "waiting for the device");
  resolve(nullptr);
}

void CudaEvent::synchronize() {
  wait();
  std::shared_ptr<CudaEvent> inherited;
  {
    std::lock_guard lock(mutex_);
    told_ = true;
    if (refusal_) throw Error(*refusal_);
    inherited = std::exchange(inherited_, nullptr);
  }
  if (inherited == nullptr) return;
  if (std::optional<Error> error = inherited->take_refusal()) throw Error(*error);
}

std::optional<Error> CudaEvent::take_refusal() {
  std::lock_guard lock(mutex_);
  return std::exchange(told_, true) ? std::nullopt : refusal_;
}

bool CudaEvent::resolved() {
  std::lock_guard lock(mutex_);
  return resolved_;
}

bool CudaEvent::refused() {
  std::lock_guard lock(mutex_);
  return refusal_ && !told_;
}

bool CudaEvent::matters() {
  std::lock_guard lock(mutex_);
  return resolved_ ? (refusal_ && !told_) || inherited_ != nullptr
                   : report_.words.data != nullptr || !sources_.empty();
}

void CudaEvent::order(Device& device, Stream stream) {
  if (&device == address_ && stream.id == stream_.id) return;
  {
    std::lock_guard lock(mutex_);
    if (resolved_) return;
  }
  auto& later = static_cast<CudaDevice&>(device);
  Current current(*later.context());
  later.check(later.driver().stream_wait_event(later.queue(stream), handle_.get(), 0),
              "ordering two streams");
}

void CudaEvent::hold(std::shared_ptr<void> owner) {
  auto device = device_.lock();
  if (device == nullptr) return;  // it has waited for all its work
  {
    std::lock_guard lock(mutex_);
    if (resolved_) return;
    held_.push_back(std::move(owner));
  }
  watch();
}

void CudaEvent::watch() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(watched_, true)) return;
  }
  if (auto device = device_.lock()) device->watch(shared_from_this());
}

void CudaEvent::finish() noexcept {
  try {
    wait();
  } catch (const Error& error) {
    resolve(&error);
  }
}

void CudaEvent::add_kernels(std::vector<std::string>* names) {
  std::lock_guard lock(mutex_);
  if (report_.plan != nullptr) program_->add_kernels(report_.plan->routine, names);
}

void CudaEvent::resolve(const Error* lost) {
  // What goes, goes without the lock: it may be anybody's.
  std::vector<std::shared_ptr<void>> held;
  std::vector<std::shared_ptr<CudaEvent>> sources, forgotten;
  std::shared_ptr<const Plan> plan;
  {
    std::lock_guard lock(mutex_);
    if (resolved_) return;
    sources = sources_;
  }
  for (const auto& source : sources) source->resolve(lost);  // this work came behind them
  std::lock_guard lock(mutex_);
  if (std::exchange(resolved_, true)) return;
  held.swap(held_);
  forgotten.swap(sources_);
  plan.swap(report_.plan);
  if (report_.words.data != nullptr) {
    refusal_ = find_refusal(plan->routine, static_cast<const int64_t*>(report_.words.data));
    context_->give_back(std::exchange(report_.words, {}));
  }
  if (lost != nullptr) refusal_ = *lost;
  for (const std::shared_ptr<CudaEvent>& source : sources) {
    if (inherited_ != nullptr) break;
    std::lock_guard other(source->mutex_);
    inherited_ = source->refusal_ && !source->told_ ? source : source->inherited_;
  }
}

}  // namespace heddle::cuda
