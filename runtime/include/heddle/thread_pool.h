#pragma once

#include <cstdint>
#include <memory>

namespace heddle {

/// How many cores this process may use, by its affinity and the CPU quota of its control groups.
int usable_cores();

struct ThreadPoolOptions {
  int threads = 0;              ///< The caller included; 0: as many as `usable_cores`.
  bool pin = false;             ///< Binds each worker to a core; the caller stays where it is.
  int spin_microseconds = 100;  ///< How long an idle worker spins before it sleeps.
};

/// A range of tasks: `function(context, first, last)` runs tasks `first` to `last - 1`.
using TaskFunction = void (*)(const void* context, int64_t first, int64_t last);

/// Workers that, with the calling thread, run one range of tasks at a time.
class ThreadPool {
 public:
  /// Throws a device error where the system refuses the threads, an input error where their number
  /// is negative or above 65536.
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Runs all tasks and returns when they are done. Where the pool is busy with another caller's
  /// tasks, or this is a child of the process that made it, the calling thread runs its own alone.
  /// A thread claims a multiple of `together` tasks, or what is left of a share.
  void run(TaskFunction function, const void* context, int64_t tasks, int64_t together = 1);

  int threads() const { return threads_; }

 private:
  struct State;

  void stop();

  int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
