#include "heddle/model.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "heddle/error.h"
#include "plan.h"

namespace heddle {
namespace {

/// An address; in whole numbers, because a plan has places too that no step of it uses.
void* at(void* base, int64_t offset) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(base) +
                                 static_cast<uintptr_t>(offset));
}

/// Remembers the memory of a tensor whose uses somebody tracks: on a GPU, unless the caller does.
void track(Storage* storage, std::vector<Storage*>* tracked) {
  if (storage != nullptr && storage->uses() != nullptr) tracked->push_back(storage);
}

}  // namespace

/// What one running call works in.
struct Model::Arena : Counted<Arena> {
  using Counted<Arena>::live;

  /// Makes room for a plan behind the program's status words and counters, which are zero.
  void grow(const Program& program, const Plan& plan) {
    zeros = program.status_bytes() + static_cast<size_t>(plan.counters);
    const size_t wanted = zeros + static_cast<size_t>(plan.arena);
    if (memory && memory->size() >= wanted) return;
    const std::shared_ptr<Device>& device = program.device();
    memory.reset();
    memory = Storage::allocate(device, wanted, MemoryKind::kArenas, stream);
    device->clear(memory->data(), zeros, stream);
    if (memory->uses() != nullptr) memory->uses()->note_write(device->record(stream));
  }

  /// Whether no work is left that was given to `stream`.
  bool idle() const {
    if (!memory || memory->uses() == nullptr) return true;
    std::shared_ptr<Event> last = memory->uses()->written();
    return last == nullptr || last->reached();
  }

  std::shared_ptr<Storage> memory;
  size_t zeros = 0;             // in front
  std::vector<void*> pointers;  // one for each buffer of the program
  std::vector<void*> outputs;
  std::vector<Storage*> read, written;  // where somebody tracks it
  Stream stream;
};

/// An arena on loan to one call. It is used in the order of its stream, or once that is done.
class Model::Lease {
 public:
  Lease(const Model& model, const Plan& plan, Stream stream) : model_(model) {
    take_of(stream);
    if (!arena_) take_idle();
    if (!arena_) arena_ = std::make_unique<Arena>();
    arena_->stream = stream;
    arena_->outputs.resize(plan.outputs.size());
    arena_->grow(*model.program_, plan);
    arena_->pointers.resize(plan.placements.size());
  }

  ~Lease() {
    std::lock_guard lock(model_.mutex_);
    model_.arenas_.push_back(std::move(arena_));
  }

  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Arena& operator*() const { return *arena_; }
  Arena* operator->() const { return arena_.get(); }

 private:
  void take_of(Stream stream) {
    std::lock_guard lock(model_.mutex_);
    auto& kept = model_.arenas_;
    for (size_t i = kept.size(); i-- > 0 && !arena_;) {
      if (kept[i]->stream.id != stream.id) continue;
      arena_ = std::move(kept[i]);
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // Who asks what is done lets go of what it used, which may be anybody's: that is no thing to do
  // under a lock.
  void take_idle() {
    std::vector<std::unique_ptr<Arena>> busy;
    while (std::unique_ptr<Arena> last = take_last()) {
      if (last->idle()) {
        arena_ = std::move(last);
        break;
      }
      busy.push_back(std::move(last));
    }
    std::lock_guard lock(model_.mutex_);
    std::move(busy.rbegin(), busy.rend(), std::back_inserter(model_.arenas_));
  }

  std::unique_ptr<Arena> take_last() {
    std::lock_guard lock(model_.mutex_);
    if (model_.arenas_.empty()) return nullptr;
    std::unique_ptr<Arena> last = std::move(model_.arenas_.back());
    model_.arenas_.pop_back();
    return last;
  }

  const Model& model_;
  std::unique_ptr<Arena> arena_;
};

int64_t Model::live_arenas() { return Arena::live(); }

Model::Model(std::shared_ptr<const Program> program, const std::vector<WeightSource>& weights)
    : program_(not_null(std::move(program), "Model: program")) {
  bind(weights);
  initialize();
}

Model::~Model() { program_->code().settle(); }

void Model::initialize() {
  const std::shared_ptr<Device>& device = program_->device();
  state_ = Storage::allocate(device, state_size(), MemoryKind::kState);
  const std::shared_ptr<const Plan> plan(std::shared_ptr<void>(), &program_->init());
  if (!plan->routine.steps.empty()) {
    Arena arena;
    arena.grow(*program_, *plan);
    arena.pointers.resize(plan->placements.size());
    arena.written = {state_.get()};
    run(plan, arena, {}, {});
    Buffer(state_, DType::kUInt8, {static_cast<int64_t>(state_size())}).synchronize();
  }
  program_->artifact().forget_pages();
}

void Model::execute(Span<TensorView> inputs, Span<TensorView> outputs, Stream stream) const {
  std::shared_ptr<const Plan> plan = program_->plan(inputs);
  check_outputs(*program_, *plan, inputs, outputs, in_place_);
  Lease arena(*this, *plan, stream);
  arena->written.clear();
  for (size_t i = 0; i < outputs.size(); ++i) {
    arena->outputs[i] = outputs[i].data;
    track(outputs[i].storage, &arena->written);
  }
  run(plan, *arena, inputs, stream);
}

std::vector<Buffer> Model::execute(Span<TensorView> inputs, Stream stream) const {
  return run(program_->plan(inputs), inputs, stream, nullptr);
}

std::vector<StepTime> Model::profile(Span<TensorView> inputs) const {
  const Device& device = *program_->device();
  if (device.kind() != DeviceKind::kCpu) {
    throw Error(ErrorKind::kDevice,
                "profile: wanted a model on a CPU, got one on " + device.name());
  }
  std::shared_ptr<const Plan> plan = program_->plan(inputs);
  std::vector<int64_t> times;
  times.reserve(plan->routine.steps.size() + 1);
  run(plan, inputs, {}, &times);
  const Artifact& artifact = program_->artifact();
  std::vector<StepTime> rows;
  for (const Step& step : plan->routine.steps) {
    const bool copy = step.opcode == Opcode::kCopy;
    StepTime& row = rows.emplace_back();
    row.kernel =
        copy ? "copy" : artifact.text(artifact.kernels(program_->record())[step.kernel].name);
    row.label = artifact.text(step.instruction->label);
    row.nanoseconds = times[rows.size()] - times[rows.size() - 1];
    row.work = step.work;
    row.bytes = 0;
    for (uint32_t i = 0; i < step.argument_count; ++i) {
      row.bytes += plan->placements[step.arguments[i]].size;
    }
  }
  return rows;
}

std::vector<Buffer> Model::run(const std::shared_ptr<const Plan>& plan, Span<TensorView> inputs,
                               Stream stream, std::vector<int64_t>* times) const {
  std::vector<Buffer> outputs;
  outputs.reserve(plan->outputs.size());
  for (size_t i = 0; i < plan->outputs.size(); ++i) {
    DType dtype = static_cast<DType>(program_->artifact().outputs()[i].dtype);
    outputs.push_back(Buffer::allocate(program_->device(), dtype, plan->outputs[i], stream));
  }
  Lease arena(*this, *plan, stream);
  arena->written.clear();
  for (size_t i = 0; i < outputs.size(); ++i) {
    arena->outputs[i] = outputs[i].data();
    track(outputs[i].storage().get(), &arena->written);
  }
  run(plan, *arena, inputs, stream, times);
  return outputs;
}

void Model::run(const std::shared_ptr<const Plan>& plan, Arena& arena, Span<TensorView> inputs,
                Stream stream, std::vector<int64_t>* times) const {
  arena.read.clear();
  for (const TensorView& input : inputs) track(input.storage, &arena.read);
  Call made = call(*plan, arena, inputs);
  made.stream = stream;
  made.times = times;
  made.read = arena.read;
  made.written = arena.written;
  made.scratch = arena.memory.get();
  made.plan = &plan;
  program_->code().run(plan->routine, made);
}

Call Model::call(const Plan& plan, Arena& arena, Span<TensorView> inputs) const {
  auto* status = static_cast<int64_t*>(arena.memory->data());
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    const Placement& place = plan.placements[i];
    void* pointer = status;
    switch (place.kind) {
      case BufferKind::kInput:
        pointer = place.index < inputs.size() ? inputs[place.index].data : nullptr;
        break;
      case BufferKind::kOutput:
        pointer = place.index < arena.outputs.size() ? arena.outputs[place.index] : nullptr;
        break;
      case BufferKind::kWeight:
        pointer = weights_[place.index];
        break;
      case BufferKind::kConstant:
        pointer = constants_[place.index];
        break;
      case BufferKind::kState:
        pointer = at(state_->data(), place.offset);
        break;
      case BufferKind::kArena:
        pointer = at(status, static_cast<int64_t>(arena.zeros) + place.offset);
        break;
      case BufferKind::kCounters:
        pointer = at(status, static_cast<int64_t>(program_->status_bytes()));
        break;
      case BufferKind::kStatus:
        pointer = status + kStatusWords * place.index;
        break;
    }
    arena.pointers[i] = pointer;
  }
  Call made{};
  made.pointers = arena.pointers.data();
  made.pointer_count = arena.pointers.size();
  made.status = status;
  made.zeros = arena.zeros;
  return made;
}

std::vector<double> Model::replay(const std::vector<Prepared>& calls, int repeats, int count) {
  struct Ready {
    std::shared_ptr<const Plan> plan;
    std::unique_ptr<Lease> arena;
    Call call;
  };
  std::vector<Ready> ready;
  for (const Prepared& wanted : calls) {
    if (wanted.model == nullptr) fail(ErrorKind::kInput, "replay", "models", "a null pointer");
    const Model& model = *wanted.model;
    if (model.program_->device() != calls.front().model->program_->device()) {
      fail(ErrorKind::kInput, "replay", "models on one device", "models on several");
    }
    Ready& made = ready.emplace_back();
    made.plan = model.program_->plan(wanted.inputs);
    check_outputs(*model.program_, *made.plan, wanted.inputs, wanted.outputs, model.in_place_);
    made.arena = std::make_unique<Lease>(model, *made.plan, Stream());
    for (size_t i = 0; i < wanted.outputs.size(); ++i) {
      (*made.arena)->outputs[i] = wanted.outputs[i].data;
    }
    made.call = model.call(*made.plan, **made.arena, wanted.inputs);
  }
  if (calls.empty()) return {};
  const std::shared_ptr<Device>& device = calls.front().model->program_->device();
  for (const Prepared& wanted : calls) {
    for (Span<TensorView> views : {wanted.inputs, wanted.outputs}) {
      for (const TensorView& view : views) {
        if (view.storage != nullptr && view.storage->uses() != nullptr) {
          view.storage->uses()->order_write(*device, {});
        }
      }
    }
  }
  auto enqueue = [&](Stream stream) {
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (size_t i = 0; i < ready.size(); ++i) {
        ready[i].call.stream = stream;
        calls[i].model->program_->code().enqueue(ready[i].plan->routine, ready[i].call);
      }
    }
  };
  std::vector<double> seconds = device->replay(enqueue, count);
  std::optional<Error> refusal;
  for (const Ready& made : ready) {
    const Routine& routine = made.plan->routine;
    std::vector<int64_t> words(static_cast<size_t>(routine.checks) * kStatusWords);
    const size_t bytes = words.size() * sizeof(int64_t);
    device->copy_to_host(words.data(), made.call.status, bytes);
    device->clear(made.call.status, bytes, {});
    if (!refusal) refusal = find_refusal(routine, words.data());
  }
  if (refusal) throw Error(*refusal);
  return seconds;
}

}  // namespace heddle
