#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

class Artifact;
struct ProgramRecord;
struct Routine;

/// The numbers are those of `ProgramRecord::target`.
enum class DeviceKind : uint32_t { kCpu = 1, kCuda = 2 };

/// A queue of work on a device (a `CUstream`); null, the only one a CPU has, is the default one.
using Stream = void*;

/// What one run of a routine works on.
struct Call {
  void* const* pointers;  ///< One for each buffer of the program, in device memory.
  size_t pointer_count;
  int64_t* status;  ///< Four words in device memory, zero before and after each run.
  Stream stream;
  /// Null, or what a CPU adds the steady clock's nanoseconds to: at the start, and after each step.
  std::vector<int64_t>* times = nullptr;
};

/// The code of one program, loaded on one device; safe to run from many threads at once.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;

  /// Runs the steps of `routine` in order. A CPU has finished at return; a CUDA device finishes in
  /// stream order. Throws an input error when a kernel refuses the values of its input.
  virtual void run(const Routine& routine, const Call& call) const = 0;

  /// Gives the steps of `routine` to the call's stream and does not wait. A CPU has no streams: it
  /// runs them.
  virtual void enqueue(const Routine& routine, const Call& call) const { run(routine, call); }

  /// What was chosen for each kernel, in order: `"x86-64-v4"`.
  virtual std::string arch(uint32_t kernel) const = 0;
};

/// Where memory lives and programs run.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual int index() const = 0;

  /// Memory at a multiple of 64, contents unknown; a size of 0 gives null. Throws a device error.
  virtual void* allocate(size_t size) = 0;
  virtual void release(void* data, size_t size) noexcept = 0;

  /// Copies between host and device; finished at return.
  virtual void copy_from_host(void* target, const void* source, size_t size) = 0;
  virtual void copy_to_host(void* target, const void* source, size_t size) = 0;

  /// Waits for all work queued on `stream`.
  virtual void synchronize(Stream stream) = 0;

  /// Captures what `enqueue` gives to its stream as one graph, launches it `count` times after two
  /// launches that do not count, and returns the seconds that each took on the device. Throws a
  /// device error, on a CPU always.
  virtual std::vector<double> replay(const std::function<void(Stream)>& enqueue, int count);

  /// Chooses and loads the code of each kernel of `program`. Throws a device error that names what
  /// the code needs and what the device has. The artifact may go before the code does.
  virtual std::unique_ptr<LoadedCode> load(const Artifact& artifact,
                                           const ProgramRecord& program) = 0;

  /// `"cpu:0"`.
  std::string name() const;
};

}  // namespace heddle
