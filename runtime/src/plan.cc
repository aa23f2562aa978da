#include "plan.h"

#include <algorithm>
#include <string>

#include "heddle/error.h"

namespace heddle {
namespace {

/// Lays out one routine; every range is checked here, once for each shape.
class Planner {
 public:
  Planner(const Artifact& artifact, const ProgramRecord& program, const std::vector<int64_t>& sizes,
          Plan* plan)
      : artifact_(artifact), buffers_(artifact.buffers(program)), sizes_(sizes), plan_(plan) {}

  void place(Slot arena) {
    plan_->arena = sizes_[arena];
    if (plan_->arena < 0) {
      fail(ErrorKind::kInput, "the arena", "0 bytes or more", std::to_string(plan_->arena));
    }
    plan_->placements.reserve(buffers_.size());
    for (const BufferRecord& buffer : buffers_) {
      if (buffer.kind == BufferKind::kCounters) {
        plan_->counters = std::max(plan_->counters, (sizes_[buffer.size] + 63) / 64 * 64);
      }
      plan_->placements.push_back(
          {buffer.kind, buffer.index, sizes_[buffer.offset], sizes_[buffer.size]});
    }
  }

  void lay_out(Range instructions) {
    Routine& routine = plan_->routine;
    routine.artifact = &artifact_;
    size_t sizes = 0, maps = 0;
    for (const InstructionRecord& row : artifact_.instructions(instructions)) {
      sizes += row.dims.count + row.grids.count;
      maps += row.tensor_maps.count;
    }
    routine.sizes.reserve(sizes);  // the steps point into these
    routine.tensor_maps.reserve(maps);
    routine.steps.reserve(instructions.count);
    for (const InstructionRecord& row : artifact_.instructions(instructions)) add(row);
    separate_statuses();
  }

 private:
  std::string label(const InstructionRecord& row) const {
    return "'" + std::string(artifact_.text(row.label)) + "'";
  }

  void add(const InstructionRecord& row) {
    Routine& routine = plan_->routine;
    Span<uint32_t> arguments = artifact_.arguments(row);
    Step step{row.opcode,        row.kernel,
              arguments.data(),  static_cast<uint32_t>(arguments.size()),
              row.dims.count,    values(row.dims),
              values(row.grids), routine.tensor_maps.data() + routine.tensor_maps.size(),
              sizes_[row.work],  &row};
    bool empty = row.opcode == Opcode::kCopy && step.work == 0;
    for (uint32_t i = 0; i < row.grids.count; ++i) {
      const int64_t size = step.grids[i];
      if (size < 0) {
        fail(ErrorKind::kInput, label(row), "a grid of 0 or more", std::to_string(size));
      }
      empty = empty || size == 0;
    }
    for (uint32_t argument : arguments) check(row, argument);
    for (const TensorMapRecord& record : artifact_.tensor_maps(row)) {
      routine.tensor_maps.push_back(tensor_map(row, record, arguments[record.argument]));
    }
    if (row.opcode == Opcode::kCopy) {
      if (step.work < 0) {
        fail(ErrorKind::kInput, label(row), "a copy of 0 or more bytes", std::to_string(step.work));
      }
      for (uint32_t argument : arguments) {
        int64_t room = plan_->placements[argument].size;
        if (step.work > room) {
          fail(ErrorKind::kInput, label(row),
               "a copy of at most " + std::to_string(room) + " bytes", std::to_string(step.work));
        }
      }
    }
    if (!empty) routine.steps.push_back(step);
  }

  /// Where the values of `range` in dims are from now on.
  const int64_t* values(Range range) {
    std::vector<int64_t>& sizes = plan_->routine.sizes;
    const int64_t* first = sizes.data() + sizes.size();
    for (Slot slot : artifact_.dims(range)) sizes.push_back(sizes_[slot]);
    return first;
  }

  /// A tensor map with its sizes known, which has to lie inside its buffer.
  TensorMap tensor_map(const InstructionRecord& row, const TensorMapRecord& record,
                       uint32_t buffer) const {
    TensorMap map{&record, {}, {}};
    Span<Slot> shape = artifact_.dims(record.shape), strides = artifact_.dims(record.strides);
    int64_t end = record.item;
    bool fine = true, empty = false;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const bool last = axis + 1 == shape.size();
      const int64_t size = sizes_[shape[axis]], stride = last ? record.item : sizes_[strides[axis]];
      int64_t reach = 0;
      fine = fine && size >= 0 && stride >= 0 &&
             !__builtin_mul_overflow(size - 1, stride, &reach) &&
             !__builtin_add_overflow(end, reach, &end);
      empty = empty || size == 0;
      map.shape[axis] = size;
      map.strides[axis] = stride;
    }
    const int64_t room = plan_->placements[buffer].size;
    if (!fine || (!empty && end > room)) {
      fail(ErrorKind::kInput, label(row) + ", tensor map of buffer " + std::to_string(buffer),
           "sizes and strides of 0 or more inside " + std::to_string(room) + " bytes",
           fine ? std::to_string(end) + " bytes" : "others");
    }
    return map;
  }

  /// Gives each step that checks a status word of its own, so that what one refuses is not lost to
  /// another: the buffer of the status becomes as many as there are such steps.
  void separate_statuses() {
    Routine& routine = plan_->routine;
    auto is_status = [&](uint32_t number) {
      return plan_->placements[number].kind == BufferKind::kStatus;
    };
    size_t arguments = 0;
    for (Step& step : routine.steps) {
      if (!std::any_of(step.arguments, step.arguments + step.argument_count, is_status)) continue;
      step.check = routine.checks++;
      arguments += step.argument_count;
    }
    routine.arguments.reserve(arguments);  // the steps point into it
    for (Step& step : routine.steps) {
      if (step.check < 0) continue;
      Placement own{BufferKind::kStatus, static_cast<uint32_t>(step.check), 0, 0};
      const uint32_t* own_arguments = routine.arguments.data() + routine.arguments.size();
      for (uint32_t i = 0; i < step.argument_count; ++i) {
        uint32_t number = step.arguments[i];
        if (is_status(number)) {
          own.size = plan_->placements[number].size;
          number = static_cast<uint32_t>(plan_->placements.size());
          plan_->placements.push_back(own);
        }
        routine.arguments.push_back(number);
      }
      step.arguments = own_arguments;
    }
  }

  /// What can go wrong with a buffer only now that sizes are known.
  void check(const InstructionRecord& row, uint32_t number) const {
    const Placement& place = plan_->placements[number];
    int64_t limit = place.size, end = place.size;
    bool aligned = true;
    switch (place.kind) {
      case BufferKind::kInput:
        limit = *plan_->inputs[place.index].bytes(dtype(artifact_.inputs()[place.index]));
        break;
      case BufferKind::kOutput:
        limit = *plan_->outputs[place.index].bytes(dtype(artifact_.outputs()[place.index]));
        break;
      case BufferKind::kArena:
        limit = plan_->arena;
        aligned = place.offset >= 0 && place.offset % 64 == 0 &&
                  !__builtin_add_overflow(place.offset, place.size, &end);
        break;
      default:
        break;
    }
    if (!aligned || place.size < 0 || end > limit) {
      fail(ErrorKind::kInput, label(row) + ", buffer " + std::to_string(number),
           "a multiple of 64, inside " + std::to_string(limit) + " bytes",
           std::to_string(place.size) + " bytes at " + std::to_string(place.offset));
    }
  }

  static DType dtype(const TensorRecord& record) { return static_cast<DType>(record.dtype); }

  const Artifact& artifact_;
  Span<BufferRecord> buffers_;
  const std::vector<int64_t>& sizes_;
  Plan* plan_;
};

/// Whether a step before the copy names the output, or one after it the input.
bool named_otherwise(const Plan& plan, const Update& update, size_t copy) {
  for (size_t i = 0; i < plan.routine.steps.size(); ++i) {
    const Step& step = plan.routine.steps[i];
    for (uint32_t k = 0; k < step.argument_count; ++k) {
      const Placement& place = plan.placements[step.arguments[k]];
      if (i < copy && place.kind == BufferKind::kOutput && place.index == update.output)
        return true;
      if (i > copy && place.kind == BufferKind::kInput && place.index == update.input) return true;
    }
  }
  return false;
}

std::vector<Update> find_updates(const Plan& plan, const Artifact& artifact) {
  std::vector<Update> updates;
  for (size_t i = 0; i < plan.routine.steps.size(); ++i) {
    const Step& step = plan.routine.steps[i];
    if (step.opcode != Opcode::kCopy) continue;
    const Placement& source = plan.placements[step.arguments[0]];
    const Placement& target = plan.placements[step.arguments[1]];
    if (source.kind != BufferKind::kInput || target.kind != BufferKind::kOutput) continue;
    DType from = static_cast<DType>(artifact.inputs()[source.index].dtype);
    DType to = static_cast<DType>(artifact.outputs()[target.index].dtype);
    if (step.work != *plan.inputs[source.index].bytes(from) ||
        step.work != *plan.outputs[target.index].bytes(to)) {
      continue;
    }
    Update update{source.index, target.index};
    if (!named_otherwise(plan, update, i)) updates.push_back(update);
  }
  return updates;
}

Shape output_shape(const Artifact& artifact, const TensorRecord& record,
                   const std::vector<int64_t>& sizes) {
  int64_t values[kMaxRank];
  Span<Slot> slots = artifact.dims(record.shape);
  for (size_t axis = 0; axis < slots.size(); ++axis) values[axis] = sizes[slots[axis]];
  Shape shape(values, slots.size());
  if (!shape.bytes(static_cast<DType>(record.dtype))) {
    throw Error(ErrorKind::kInput, "output '" + std::string(artifact.text(record.name)) +
                                       "': wanted sizes of 0 or more that fit 63 bits in bytes, "
                                       "got " +
                                       shape.text());
  }
  return shape;
}

}  // namespace

size_t most_checks(const Artifact& artifact, const ProgramRecord& program) {
  const Span<BufferRecord> buffers = artifact.buffers(program);
  auto is_status = [&](uint32_t number) { return buffers[number].kind == BufferKind::kStatus; };
  size_t most = 0;
  for (const Range& routine : {program.init, program.main}) {
    size_t count = 0;
    for (const InstructionRecord& row : artifact.instructions(routine)) {
      const Span<uint32_t> arguments = artifact.arguments(row);
      count += std::any_of(arguments.begin(), arguments.end(), is_status) ? 1 : 0;
    }
    most = std::max(most, count);
  }
  return most;
}

Plan plan_init(const Artifact& artifact, const ProgramRecord& program) {
  // The reader has checked that init needs no size but numbers.
  std::vector<int64_t> sizes;
  sizes.reserve(artifact.sizes().size());
  for (const SizeRecord& size : artifact.sizes()) sizes.push_back(size.b);
  Plan plan;
  try {
    Planner planner(artifact, program, sizes, &plan);
    planner.place(program.init_arena);
    planner.lay_out(program.init);
  } catch (const Error& error) {
    throw Error(ArtifactReason::kMalformed, artifact.path() + ": init: " + error.what());
  }
  return plan;
}

Plan plan_main(const Artifact& artifact, const ProgramRecord& program, Span<TensorView> inputs,
               const std::vector<int64_t>& sizes) {
  Plan plan;
  plan.inputs.reserve(inputs.size());
  for (const TensorView& input : inputs) plan.inputs.push_back(input.shape);
  plan.outputs.reserve(artifact.outputs().size());
  for (const TensorRecord& output : artifact.outputs()) {
    plan.outputs.push_back(output_shape(artifact, output, sizes));
  }
  Planner planner(artifact, program, sizes, &plan);
  planner.place(program.main_arena);
  planner.lay_out(program.main);
  plan.updates = find_updates(plan, artifact);
  return plan;
}

}  // namespace heddle
