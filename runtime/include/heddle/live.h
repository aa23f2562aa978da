#pragma once

#include <atomic>
#include <cstdint>

namespace heddle {

/// Counts the living objects of `T`, which derives from it, so that tests can see leaks.
template <class T>
class Counted {
 public:
  static int64_t live() { return count_.load(std::memory_order_relaxed); }

 protected:
  Counted() { count_.fetch_add(1, std::memory_order_relaxed); }
  Counted(const Counted&) : Counted() {}
  Counted& operator=(const Counted&) = default;
  ~Counted() { count_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  inline static std::atomic<int64_t> count_{0};
};

/// How many objects of each kind are alive in this process.
struct LiveObjects {
  int64_t artifacts = 0;
  int64_t storages = 0;
  int64_t programs = 0;
  int64_t models = 0;
  int64_t arenas = 0;
  int64_t events = 0;
};

LiveObjects live_objects();

}  // namespace heddle
