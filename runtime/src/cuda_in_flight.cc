// What a CUDA device has been given and has not finished, and what its calls refused.

#include <algorithm>
#include <iterator>
#include <utility>

#include "heddle/cuda_device.h"
#include "heddle/cuda_event.h"

namespace heddle::cuda {

std::string CudaDevice::running_kernels() const {
  std::vector<std::shared_ptr<CudaEvent>> events;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, queued] : in_flight_) {
      events.insert(events.end(), queued.begin(), queued.end());
    }
  }
  std::vector<std::string> names;
  for (const std::shared_ptr<CudaEvent>& event : events) event->add_kernels(&names);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void CudaDevice::watch(std::shared_ptr<CudaEvent> event) {
  std::lock_guard lock(mutex_);
  in_flight_[event->stream().id].push_back(std::move(event));
}

bool CudaDevice::is_over(CudaEvent& event) const {
  try {
    return event.reached();
  } catch (const Error&) {
    require();
    event.finish();  // Its own failure: it tells who looks at what it was to make.
    return true;
  }
}

void CudaDevice::retire() {
  std::vector<std::shared_ptr<CudaEvent>> fronts;
  std::vector<Kept> kept;
  {
    std::lock_guard lock(mutex_);
    kept.swap(kept_);
    for (const auto& [id, queued] : in_flight_) fronts.push_back(queued.front());
  }
  for (Kept& each : kept) release(each.data, each.stream, std::move(each.after), true);
  while (!fronts.empty()) {
    std::shared_ptr<CudaEvent> event = std::move(fronts.back());
    fronts.pop_back();
    if (!is_over(*event)) continue;
    std::lock_guard lock(mutex_);
    auto found = in_flight_.find(event->stream().id);
    if (found == in_flight_.end() || found->second.front() != event) continue;  // another thread
    found->second.pop_front();
    if (found->second.empty()) {
      in_flight_.erase(found);
    } else {
      fronts.push_back(found->second.front());
    }
    if (event->refused()) refused_.push_back(std::move(event));
  }
}

void CudaDevice::raise_refusal(const CudaProgram& program, Stream stream) {
  if (std::optional<Error> error = first_refusal(stream, &program)) throw Error(*error);
}

std::optional<Error> CudaDevice::first_refusal(Stream stream, const CudaProgram* program) {
  std::optional<Error> first;
  std::lock_guard lock(mutex_);
  auto ours = [&](const std::shared_ptr<CudaEvent>& event) {
    if (!event->refused()) return true;
    if (event->stream().id != stream.id) return false;
    // Who still has an output will be told when looking at it; a stream's end is for everyone.
    if (program != nullptr && (event->program() != program || event.use_count() > 1)) return false;
    std::optional<Error> error = event->take_refusal();
    if (!first) first = std::move(error);
    return true;
  };
  refused_.erase(std::remove_if(refused_.begin(), refused_.end(), ours), refused_.end());
  return first;
}

void CudaDevice::settle(const CudaProgram* program) noexcept {
  auto wanted = [&](const std::shared_ptr<CudaEvent>& event) {
    return program == nullptr || event->program() == program;
  };
  std::vector<std::shared_ptr<CudaEvent>> events;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, queued] : in_flight_) {
      std::copy_if(queued.begin(), queued.end(), std::back_inserter(events), wanted);
    }
  }
  for (const std::shared_ptr<CudaEvent>& event : events) event->finish();
  std::vector<std::shared_ptr<CudaEvent>> over;  // goes without the lock
  std::lock_guard lock(mutex_);
  for (auto it = in_flight_.begin(); it != in_flight_.end();) {
    auto& queued = it->second;
    // Calls that another thread has begun meanwhile stay.
    auto rest = std::stable_partition(queued.begin(), queued.end(), [&](const auto& event) {
      return !wanted(event) || !event->resolved();
    });
    over.insert(over.end(), rest, queued.end());
    queued.erase(rest, queued.end());
    it = queued.empty() ? in_flight_.erase(it) : std::next(it);
  }
  std::copy_if(over.begin(), over.end(), std::back_inserter(refused_),
               [](const auto& event) { return event->refused(); });
}

void CudaDevice::forget(const CudaProgram& program) noexcept {
  std::vector<std::shared_ptr<CudaEvent>> forgotten;  // go without the lock
  std::lock_guard lock(mutex_);
  auto kept = std::stable_partition(refused_.begin(), refused_.end(), [&](const auto& event) {
    return event->program() != &program;
  });
  forgotten.assign(kept, refused_.end());
  refused_.erase(kept, refused_.end());
}

}  // namespace heddle::cuda
