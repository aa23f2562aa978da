#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/event.h"
#include "heddle/memory.h"
#include "heddle/span.h"

namespace heddle {

class Artifact;
class Storage;
struct Plan;
struct ProgramRecord;
struct Routine;

/// The numbers are those of `ProgramRecord::target`.
enum class DeviceKind : uint32_t { kCpu = 1, kCuda = 2 };

/// `"cpu"` or `"cuda"`.
inline const char* kind_name(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

/// `"cpu:0"`.
std::string device_name(DeviceKind kind, int index);

/// What one run of a routine works on.
struct Call {
  void* const* pointers;  ///< One for each buffer of the program, in device memory.
  size_t pointer_count;
  int64_t* status;  ///< Four words in device memory for each check, zero before and after each run.
  size_t zeros = 0;  ///< Bytes from `status` on that are zero before and after each run.
  Stream stream;
  /// Null, or what a CPU adds the steady clock's nanoseconds to: at the start, and after each step.
  std::vector<int64_t>* times = nullptr;
  // What follows is for work that goes on after the call; a CPU has none.
  Span<Storage*> read;               ///< The inputs' memory, where somebody tracks it.
  Span<Storage*> written;            ///< The outputs'.
  const Storage* scratch = nullptr;  ///< The arena's.
  const std::shared_ptr<const Plan>* plan = nullptr;  ///< The routine's, which the work keeps.
};

/// The code of one program, loaded on one device; safe to run from many threads at once.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;

  /// Runs the steps of `routine` in order. A CPU has finished at return, and throws an input error
  /// when a kernel refuses the values of its input. A CUDA device finishes in stream order, behind
  /// all that uses the call's memory; where a kernel refuses values, that memory's events throw, or
  /// nobody has these any more and the next run on this stream does.
  virtual void run(const Routine& routine, const Call& call) const = 0;

  /// Waits for all runs, so that their memory may go.
  virtual void settle() const {}

  /// Gives the steps of `routine` to the call's stream and does not wait. A CPU has no streams: it
  /// runs them.
  virtual void enqueue(const Routine& routine, const Call& call) const { run(routine, call); }

  /// In words, what made runs slower than they should be; empty: nothing.
  virtual std::string diagnostics() const { return {}; }

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

  /// The same, to be used in the order of `stream` alone.
  virtual void* allocate(size_t size, Stream) { return allocate(size); }

  /// Gives memory back once `after` is reached; of memory that was never used, once `stream`, with
  /// which it was allocated, gets there. Where it was `handed_out`, others' streams that wait for
  /// the driver's default stream get where they are now before that.
  virtual void release(void* data, Stream stream, std::vector<std::shared_ptr<Event>> after,
                       bool handed_out) noexcept = 0;

  /// Copies between host and device; finished at return. The device's memory is in nobody's use,
  /// and no other work is waited for.
  virtual void copy_from_host(void* target, const void* source, size_t size) = 0;
  virtual void copy_to_host(void* target, const void* source, size_t size) = 0;

  /// Copies what a device of this kind has to this one, in the order of all that uses either.
  virtual void copy(const Storage& source, const Storage& target, size_t size) = 0;

  /// Zeros, in the order of `stream`.
  virtual void clear(void* data, size_t size, Stream stream) = 0;

  /// The stream that a handle of the driver (a `CUstream`) is. Throws an input error where it is
  /// none of this device, as far as the driver tells.
  virtual Stream stream(void* handle);

  /// The point up to which `stream` was given work; null on a CPU, which has done it.
  virtual std::shared_ptr<Event> record(Stream) { return nullptr; }

  /// Waits for all work queued on `stream`. Throws an input error where a call there refused values
  /// and nobody was told yet.
  virtual void synchronize(Stream stream) = 0;

  /// Bytes in use, by kind, and those that are set aside, in use or not.
  virtual MemoryCounters& memory() = 0;
  virtual size_t reserved() { return memory().live(); }

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
