#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/artifact.h"
#include "heddle/buffer.h"
#include "heddle/device.h"
#include "heddle/error.h"
#include "heddle/fork.h"
#include "heddle/live.h"
#include "heddle/span.h"

namespace heddle {

/// How TMA copies boxes of a buffer, with its sizes known: those of the record, outermost first.
/// The last stride is the element.
struct TensorMap {
  const TensorMapRecord* record;
  int64_t shape[kMaxMapRank];
  int64_t strides[kMaxMapRank];
};

/// One instruction with its sizes known. A copy has no kernel, and its bytes as `work`.
struct Step {
  Opcode opcode;
  uint32_t kernel;            ///< Relative to the program's first.
  const uint32_t* arguments;  ///< Buffer numbers: indices of `Call::pointers`.
  uint32_t argument_count;
  uint32_t dim_count;
  const int64_t* dims;
  const int64_t* grids;  ///< Three for each launch of the kernel, all above zero: a dispatch with
                         ///< nothing to do is no step.
  const TensorMap* tensor_maps;  ///< Those of the kernel's launches, in order.
  int64_t work;
  const InstructionRecord* instruction;
  int32_t check = -1;  ///< Which of the routine's status words is its kernel's; -1: it has none.
};

/// Instructions in order, as a `LoadedCode` runs them.
struct Routine {
  Routine() = default;
  Routine(Routine&&) = default;
  Routine& operator=(Routine&&) = default;

  uint64_t number = next_number();  ///< No two routines of a process have the same.
  const Artifact* artifact = nullptr;
  std::vector<Step> steps;
  std::vector<int64_t> sizes;          ///< What the steps' `dims` and `grids` point into.
  std::vector<TensorMap> tensor_maps;  ///< What the steps' `tensor_maps` point into.
  std::vector<uint32_t> arguments;     ///< What the `arguments` of steps that check point into.
  int32_t checks = 0;                  ///< How many steps check; each has its own status word.

 private:
  static uint64_t next_number();
};

/// The four numbers in which a kernel says that it has refused a value; all zero: it has not.
constexpr size_t kStatusWords = 4;

/// Raises the input error for a status word that a kernel has written.
[[noreturn]] void raise_status(const Routine& routine, const Step& step, const int64_t* status);

/// The error of the first step that has refused a value, from the status words of a whole routine.
std::optional<Error> find_refusal(const Routine& routine, const int64_t* statuses);

/// Where a buffer lies, with its sizes known.
struct Placement {
  BufferKind kind;
  uint32_t index;
  int64_t offset;
  int64_t size;
};

/// An output that may be given the memory of an input, to be changed in place: it starts as a copy
/// of the whole input, which nothing reads afterwards.
struct Update {
  uint32_t input;
  uint32_t output;
};

/// Memory that a model reads where it is, which no output may have: of the artifact, or of a weight
/// that was given.
struct InPlace {
  uintptr_t begin;
  uintptr_t end;
  std::string name;  ///< `"weight 'w'"`.
};

/// All that depends on the input shapes: sizes, places, steps. Made once for each shape.
struct Plan {
  std::vector<Shape> inputs;
  std::vector<Shape> outputs;
  std::vector<Placement> placements;  ///< One for each buffer of the program.
  std::vector<Update> updates;
  int64_t arena = 0;     ///< Bytes.
  int64_t counters = 0;  ///< Bytes, a multiple of 64: the same for every plan of a program.
  Routine routine;
};

/// An artifact on a device: its code is loaded, its plans are remembered. Models share it.
class Program : Counted<Program> {
 public:
  using Counted<Program>::live;

  /// Throws a device error where the artifact has no code for `device`, and an input error where
  /// one of them is null.
  static std::shared_ptr<const Program> load(std::shared_ptr<const Artifact> artifact,
                                             std::shared_ptr<Device> device);

  const Artifact& artifact() const { return *artifact_; }
  const std::shared_ptr<const Artifact>& artifact_ptr() const { return artifact_; }
  const std::shared_ptr<Device>& device() const { return device_; }
  const ProgramRecord& record() const { return *record_; }
  const LoadedCode& code() const { return *code_; }

  /// Bytes of the status words of any of its routines, a multiple of 64.
  size_t status_bytes() const { return status_bytes_; }

  /// The plan of the init routine.
  const Plan& init() const { return init_; }

  /// The plan for these inputs, from memory where their shapes were seen lately. Throws an input
  /// error that names the input, its dim, what was wanted and what was found.
  std::shared_ptr<const Plan> plan(Span<TensorView> inputs) const;

 private:
  Program(std::shared_ptr<const Artifact> artifact, std::shared_ptr<Device> device);

  std::shared_ptr<const Artifact> artifact_;
  std::shared_ptr<Device> device_;
  const ProgramRecord* record_ = nullptr;
  size_t status_bytes_ = 0;
  Plan init_;  // outlives the code, whose end waits for calls of init
  std::unique_ptr<LoadedCode> code_;
  mutable ForkSafeMutex mutex_;
  mutable std::vector<std::shared_ptr<const Plan>> plans_;  // the last used first
};

}  // namespace heddle
