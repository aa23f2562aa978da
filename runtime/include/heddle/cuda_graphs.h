#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "heddle/cuda_device.h"

namespace heddle {
struct Routine;
}

namespace heddle::cuda {

/// What `enqueue` gives to the stream that it is handed, as a graph. `what` names it in errors.
/// Throws a device error.
GraphExec capture(const CudaDevice& device, const std::string& what,
                  const std::function<void(Stream)>& enqueue);

/// Routines as CUDA graphs: one launch in place of one for each step.
///
/// A graph holds the addresses it was captured with, so there is one for each routine (a shape) and
/// set of addresses. It is captured when such a call is seen for the second time: outputs that are
/// new at each call mostly lie elsewhere at each call, and capturing costs more than launching.
class GraphCache {
 public:
  /// `device` outlives the cache.
  explicit GraphCache(CudaDevice& device) : device_(device) {}
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  /// Launches the routine's graph for these pointers on `stream`, or returns false: there is none
  /// yet, or another thread is launching it. `enqueue` puts the steps on the stream that it is
  /// given. Throws a device error.
  bool launch(const Routine& routine, void* const* pointers, size_t count, StreamHandle stream,
              const std::function<void(Stream)>& enqueue);

 private:
  struct Entry {
    uint64_t routine = 0;
    std::vector<void*> pointers;
    GraphExec graph = nullptr;
    bool busy = false;  ///< In use by a call: it stays.
  };

  Entry* find(const Routine& routine, void* const* pointers, size_t count, bool* known);

  CudaDevice& device_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace heddle::cuda
