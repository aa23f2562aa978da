#include "heddle/program.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "heddle/error.h"
#include "heddle/sizes.h"
#include "plan.h"

namespace heddle {
namespace {

// The status word's code for offsets that fall or leave what they point into; else it is an index.
constexpr int64_t kFallingOffsets = 2;

// The code for an index whose value is a uint64.
constexpr int64_t kUnsignedIndex = 3;

// Plans are small; this many shapes are remembered.
constexpr size_t kPlans = 32;

bool same_shapes(const Plan& plan, Span<TensorView> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (plan.inputs[i] != inputs[i].shape) return false;
  }
  return true;
}

}  // namespace

uint64_t Routine::next_number() {
  static std::atomic<uint64_t> count{0};
  return ++count;
}

namespace {

Error status_error(const Routine& routine, const Step& step, const int64_t* status) {
  const std::string limit = std::to_string(status[2]);
  const std::string value = status[0] == kUnsignedIndex
                                ? std::to_string(static_cast<uint64_t>(status[1]))
                                : std::to_string(status[1]);
  std::string text = "wanted an index inside a size of " + limit + ", got " + value;
  if (status[0] == kFallingOffsets) {
    text = "wanted offsets from 0 to " + limit + " that do not fall, got " + value + " after " +
           std::to_string(status[3]);
  }
  return {ErrorKind::kInput,
          std::string(routine.artifact->text(step.instruction->label)) + ": " + text};
}

}  // namespace

void raise_status(const Routine& routine, const Step& step, const int64_t* status) {
  throw Error(status_error(routine, step, status));
}

std::optional<Error> find_refusal(const Routine& routine, const int64_t* statuses) {
  for (const Step& step : routine.steps) {
    if (step.check < 0) continue;
    const int64_t* status = statuses + kStatusWords * static_cast<size_t>(step.check);
    if (status[0] != 0) return status_error(routine, step, status);
  }
  return std::nullopt;
}

std::shared_ptr<const Program> Program::load(std::shared_ptr<const Artifact> artifact,
                                             std::shared_ptr<Device> device) {
  return std::shared_ptr<const Program>(new Program(std::move(artifact), std::move(device)));
}

Program::Program(std::shared_ptr<const Artifact> artifact, std::shared_ptr<Device> device)
    : artifact_(not_null(std::move(artifact), "Program: artifact")),
      device_(not_null(std::move(device), "Program: device")) {
  std::string found;
  for (const ProgramRecord& program : artifact_->programs()) {
    if (program.target == static_cast<uint32_t>(device_->kind())) record_ = &program;
    found +=
        std::string(found.empty() ? "" : ", ") + kind_name(static_cast<DeviceKind>(program.target));
  }
  if (record_ == nullptr) {
    throw Error(ErrorKind::kDevice,
                artifact_->path() + ": wanted a program for " + device_->name() +
                    ", got programs for: " + (found.empty() ? "nothing" : found));
  }
  init_ = plan_init(*artifact_, *record_);
  status_bytes_ = most_checks(*artifact_, *record_) * kStatusWords * sizeof(int64_t);
  status_bytes_ = std::max((status_bytes_ + 63) / 64 * 64, size_t{64});
  code_ = device_->load(*artifact_, *record_);
}

std::shared_ptr<const Plan> Program::plan(Span<TensorView> inputs) const {
  check_inputs(*artifact_, *device_, inputs);
  {
    std::lock_guard lock(mutex_);
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      if (same_shapes(**it, inputs)) {
        std::rotate(plans_.begin(), it, it + 1);
        return plans_.front();
      }
    }
  }
  std::vector<int64_t> sizes = evaluate_sizes(*artifact_, bind_symbols(*artifact_, inputs));
  check_dims(*artifact_, inputs, sizes);
  auto plan = std::make_shared<const Plan>(plan_main(*artifact_, *record_, inputs, sizes));
  std::lock_guard lock(mutex_);
  if (plans_.size() == kPlans) plans_.pop_back();
  plans_.insert(plans_.begin(), plan);
  return plan;
}

}  // namespace heddle
