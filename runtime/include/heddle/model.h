#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/fork.h"
#include "heddle/program.h"
#include "heddle/safetensors.h"

namespace heddle {

/// A weight that the user supplies: host memory that `owner` keeps alive (null: it outlives the
/// model anyway), dense, row-major, at any alignment. The model keeps the owner of what it reads in
/// place: on a CPU, what is large.
struct WeightSource {
  std::string name;
  DType dtype;
  Shape shape;
  const void* data;
  std::shared_ptr<const void> owner;
};

/// All tensors of a file, where they are, which keep it.
std::vector<WeightSource> weights_from(const std::shared_ptr<const Safetensors>& file);

/// Throws what a model of `artifact` throws for these weights. Their memory is not read: `data` may
/// be anything but null.
void check_weights(const Artifact& artifact, const std::vector<WeightSource>& weights);

/// What one step of a run took. The names live as long as the program's artifact.
struct StepTime {
  std::string_view kernel;  ///< `"copy"` for a copy.
  std::string_view label;
  int64_t nanoseconds;
  int64_t work;   ///< Elementary operations or bytes, whichever are more, as the launch estimates.
  int64_t bytes;  ///< Of all buffers that the step was given.
};

/// A program with its weights: what runs.
class Model : Counted<Model> {
 public:
  using Counted<Model>::live;

  /// How many arenas all models of this process hold.
  static int64_t live_arenas();

  /// Binds the weights and runs the program's init. A CPU uses large weights where they are, any
  /// other device gets a copy. Throws an artifact error (`kWeights`) that lists missing and extra
  /// weights, or names one of the wrong dtype or shape; an input error where `program` is null.
  Model(std::shared_ptr<const Program> program, const std::vector<WeightSource>& weights);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Runs the model into outputs of the caller, `execute({x}, {y})`: views or buffers. Safe from
  /// many threads at once; allocates no memory of the device once a shape and a number of
  /// concurrent calls were seen. Throws an input error.
  ///
  /// On a GPU the work is given to `stream` and goes on: the memory of views without a storage is
  /// the caller's to keep and to order. What a kernel refuses then is told by who waits: see
  /// `Event::synchronize`, `Device::synchronize`; or by the next call on the stream.
  void execute(Span<TensorView> inputs, Span<TensorView> outputs, Stream stream = {}) const;

  /// The same: in `execute({x}, {})` the braces are outputs, of which there are none, no stream.
  void execute(Span<TensorView> inputs, std::initializer_list<TensorView> outputs,
               Stream stream = {}) const {
    execute(inputs, Span<TensorView>(outputs), stream);
  }

  /// Runs the model into new outputs.
  std::vector<Buffer> execute(Span<TensorView> inputs, Stream stream = {}) const;

  /// Runs the model once, drops its outputs, and tells what each step took. Throws a device error
  /// on anything but a CPU.
  std::vector<StepTime> profile(Span<TensorView> inputs) const;

  /// A call with the outputs' memory.
  struct Prepared {
    const Model* model;
    Span<TensorView> inputs, outputs;
  };

  /// Runs `calls` in order, `repeats` times, as one graph of their device, and that `count` times:
  /// the seconds of each, on the device. What the graph reads and writes is the callers' to hold.
  /// Throws as `execute` does, and a device error where the device has no graphs.
  static std::vector<double> replay(const std::vector<Prepared>& calls, int repeats, int count);

  const Program& program() const { return *program_; }

  /// Bytes that init made and the model keeps: packed weights.
  size_t state_size() const { return static_cast<size_t>(program_->record().state); }

 private:
  struct Arena;
  class Lease;

  void bind(const std::vector<WeightSource>& weights);
  void initialize();
  std::vector<Buffer> run(const std::shared_ptr<const Plan>& plan, Span<TensorView> inputs,
                          Stream stream, std::vector<int64_t>* times) const;
  void run(const std::shared_ptr<const Plan>& plan, Arena& arena, Span<TensorView> inputs,
           Stream stream, std::vector<int64_t>* times = nullptr) const;
  Call call(const Plan& plan, Arena& arena, Span<TensorView> inputs) const;

  std::shared_ptr<const Program> program_;
  std::vector<void*> weights_;    // in device memory, by number
  std::vector<void*> constants_;  // in device memory, by number
  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<InPlace> in_place_;  // ascends, and no two share a byte
  std::shared_ptr<Storage> state_;
  mutable ForkSafeMutex mutex_;
  mutable std::vector<std::unique_ptr<Arena>> arenas_;  // those that no call uses
};

}  // namespace heddle
