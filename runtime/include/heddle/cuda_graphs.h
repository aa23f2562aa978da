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
///
/// Where a capture fails (somebody else's work has spoilt it, or no memory is left for the graph)
/// the call does without, and after a few of those no other one is tried.
class GraphCache {
 public:
  /// `device` outlives the cache.
  explicit GraphCache(CudaDevice& device) : device_(device) {}
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  /// Launches the routine's graph for these pointers on `stream`, or returns false: there is none
  /// (yet), or another thread is launching it. `enqueue` puts the steps on the stream that it is
  /// given. Throws a device error where a graph that there is cannot be launched.
  bool launch(const Routine& routine, void* const* pointers, size_t count, StreamHandle stream,
              const std::function<void(Stream)>& enqueue);

  /// Why a capture has failed, the first that did; empty: none has.
  std::string problem() const;

 private:
  struct Entry {
    uint64_t routine = 0;
    std::vector<void*> pointers;
    GraphExec graph = nullptr;
    bool busy = false;  ///< In use by a call: it stays.
  };

  Entry* find(const Routine& routine, void* const* pointers, size_t count, bool* known);

  /// Null where that fails, or others have failed before.
  GraphExec try_capture(const std::string& what, const std::function<void(Stream)>& enqueue);

  CudaDevice& device_;
  mutable std::mutex mutex_;  // of what follows
  int failures_ = 0;
  std::string problem_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace heddle::cuda
