#include "heddle/cuda_graphs.h"

#include <algorithm>
#include <iterator>

#include "heddle/error.h"
#include "heddle/program.h"

namespace heddle::cuda {
namespace {

// Calls that are remembered, with a graph or without.
constexpr size_t kEntries = 64;

// Captures that may fail: the first ones may have met what does not last.
constexpr int kFailures = 3;

}  // namespace

GraphExec capture(const CudaDevice& device, const std::string& what,
                  const std::function<void(Stream)>& enqueue) {
  const Driver& driver = device.driver();
  const std::string where = device.text() + ": capturing a graph of " + what;
  // A stream of its own: what other threads give to the device's stream must not be captured.
  StreamHandle stream = nullptr;
  driver.check(driver.stream_create(&stream, kStreamNonBlocking), where);
  Graph graph = nullptr;
  GraphExec made = nullptr;
  Result result = driver.capture_begin(stream, kCaptureThreadLocal);
  if (result == kSuccess) {
    try {
      enqueue(Stream::of(stream, 0));
    } catch (...) {
      driver.capture_end(stream, &graph);
      if (graph != nullptr) driver.graph_destroy(graph);
      driver.stream_destroy(stream);
      throw;
    }
    result = driver.capture_end(stream, &graph);
  }
  if (result == kSuccess) result = driver.graph_instantiate(&made, graph, 0);
  if (graph != nullptr) driver.graph_destroy(graph);
  driver.stream_destroy(stream);
  driver.check(result, where);
  return made;
}

GraphCache::~GraphCache() {
  for (const Entry& entry : entries_) {
    if (entry.graph != nullptr) device_.driver().graph_exec_destroy(entry.graph);
  }
}

bool GraphCache::launch(const Routine& routine, void* const* pointers, size_t count,
                        StreamHandle stream, const std::function<void(Stream)>& enqueue) {
  if (routine.steps.size() < 2) return false;
  bool known = false;
  Entry* entry = find(routine, pointers, count, &known);
  if (entry == nullptr) return false;
  struct Release {
    std::mutex& mutex;
    Entry& entry;
    ~Release() {
      std::lock_guard lock(mutex);
      entry.busy = false;
    }
  } release{mutex_, *entry};
  if (!known) return false;
  const std::string what = std::to_string(routine.steps.size()) + " steps";
  if (entry->graph == nullptr) entry->graph = try_capture(what, enqueue);
  if (entry->graph == nullptr) return false;
  device_.check(device_.driver().graph_launch(entry->graph, stream),
                "launching the graph of " + what);
  return true;
}

std::string GraphCache::problem() const {
  std::lock_guard lock(mutex_);
  return problem_;
}

GraphExec GraphCache::try_capture(const std::string& what,
                                  const std::function<void(Stream)>& enqueue) {
  {
    std::lock_guard lock(mutex_);
    if (failures_ >= kFailures) return nullptr;
  }
  try {
    return capture(device_, what, enqueue);
  } catch (const Error& error) {  // what fails without a graph, too, says so then
    std::lock_guard lock(mutex_);
    ++failures_;
    if (problem_.empty()) {
      problem_ = "no CUDA graph of " + what + ", which are launched one by one: " + error.what();
    }
    return nullptr;
  }
}

GraphCache::Entry* GraphCache::find(const Routine& routine, void* const* pointers, size_t count,
                                    bool* known) {
  std::lock_guard lock(mutex_);
  auto same = [&](const Entry& entry) {
    return entry.routine == routine.number && entry.pointers.size() == count &&
           std::equal(pointers, pointers + count, entry.pointers.begin());
  };
  auto found = std::find_if(entries_.begin(), entries_.end(), same);
  *known = found != entries_.end();
  if (*known && found->busy) return nullptr;  // another call has it
  if (!*known && entries_.size() < kEntries) {
    found = entries_.emplace(entries_.end());
  } else if (!*known) {
    found = std::prev(entries_.end());
    if (found->busy) return nullptr;  // as many calls at once as there is room for
    if (found->graph != nullptr) device_.driver().graph_exec_destroy(found->graph);
    found->graph = nullptr;
  }
  if (!*known) {
    found->routine = routine.number;
    found->pointers.assign(pointers, pointers + count);
  }
  entries_.splice(entries_.begin(), entries_, found);
  found->busy = true;
  return &*found;
}

}  // namespace heddle::cuda
