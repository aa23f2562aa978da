#include "heddle/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cores.h"
#include "float_mode.h"
#include "heddle/error.h"
#include "heddle/fork.h"

namespace heddle {
namespace {

constexpr int kMostThreads = 65536;

// What kernels and threads of the system keep on a stack at most; the process may give less.
constexpr size_t kStack = size_t{4} << 20;

constexpr uint64_t kOpen = uint64_t{1} << 32;

// How long an idle worker spins before it offers its core to others after each look for a job.
constexpr std::chrono::microseconds kPatience{20};

using Clock = std::chrono::steady_clock;

inline void pause() { __builtin_ia32_pause(); }

cpu_set_t set_of(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(core, &set);
  return set;
}

/// Threads that are made meanwhile take none of the program's signals, which are for its own
/// threads: what those block, to wait for it, would come to a worker. Faults stay what they are,
/// and a profiler's timer counts.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
      ::sigdelset(&all, signal);
    }
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct ThreadPool::State {
  /// One thread's part of the tasks; a cache line of its own, because all threads claim from it.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
    int64_t together = 1;

    /// Claims the next tasks, half of those that are left: few claims for a thread that comes
    /// first, and what others can take over is never less than what it has in hand. Whole groups of
    /// those that belong together. False: there are none.
    bool claim(int64_t* first, int64_t* last) {
      const int64_t left = end - next.load(std::memory_order_relaxed);
      if (left <= 0) return false;
      const int64_t half = left / 2;
      // Never more than are left: `together` may be any number, and `next` must not overflow.
      const int64_t count = std::min(left, std::max(together, half - half % together));
      *first = next.fetch_add(count, std::memory_order_relaxed);
      *last = std::min(*first + count, end);
      return *first < end;
    }
  };

  explicit State(int count) : shares(count) {}

  /// Makes the next worker; gives an error of the system, or 0.
  int add_worker(std::chrono::microseconds spin) {
    struct Start {
      State* state;
      size_t self;
      std::chrono::microseconds spin;
    };
    auto start = std::make_unique<Start>(Start{this, workers.size() + 1, spin});
    auto body = [](void* pointer) -> void* {
      const std::unique_ptr<Start> mine(static_cast<Start*>(pointer));
      mine->state->worker(mine->self, mine->spin);
      return nullptr;
    };
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    size_t usual = 0;
    pthread_attr_getstacksize(&attributes, &usual);
    pthread_attr_setstacksize(&attributes, std::max(usual, kStack));
    pthread_t made;
    const int failed = pthread_create(&made, &attributes, body, start.get());
    pthread_attr_destroy(&attributes);
    if (failed != 0) return failed;
    start.release();
    workers.push_back(made);
    return 0;
  }

  void work(size_t self) {
    for (size_t i = 0; i < active; ++i) {
      Share& share = shares[(self + i) % active];
      for (int64_t first, last; share.claim(&first, &last);) function(context, first, last);
    }
  }

  void worker(size_t self, std::chrono::microseconds spin) {
    const DefaultFloatMode mode;  // and not its maker's
    uint32_t seen = 0;
    while (!stopping.load(std::memory_order_acquire)) {
      seen = wait(seen, spin);
      // A worker that comes too late finds the gate closed and leaves the job's fields alone.
      if (gate.fetch_add(1, std::memory_order_acquire) & kOpen) work(self);
      gate.fetch_sub(1, std::memory_order_release);
    }
  }

  /// Returns the number of a job that is not `seen`: spins for a while, then sleeps.
  uint32_t wait(uint32_t seen, std::chrono::microseconds spin) {
    const auto start = Clock::now();
    for (;;) {
      for (int i = 0; i < 64; ++i) {
        uint32_t now = job.load(std::memory_order_acquire);
        if (now != seen) return now;
        pause();
      }
      const auto waited = Clock::now() - start;
      if (waited < spin) {
        if (waited > kPatience) sched_yield();
        continue;
      }
      sleepers.fetch_add(1);
      ::syscall(SYS_futex, &job, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
      sleepers.fetch_sub(1);
    }
  }

  /// Lets workers see a new job: those that spin, and up to `wanted` of those that sleep. Any
  /// worker can take any share. `sleepers` and `job` are in one total order with `wait`.
  void announce(size_t wanted) {
    job.fetch_add(1);
    if (sleepers.load() > 0) {
      leave_core(sched_getcpu());
      ::syscall(SYS_futex, &job, FUTEX_WAKE_PRIVATE, wanted, nullptr, nullptr, 0);
    }
  }

  /// Keeps the workers off the caller's core. Linux may wake a thread on the core of the one that
  /// wakes it, while another is idle: both then share that core until its next balancing. Where
  /// somebody else has moved the workers, they stay there.
  void leave_core(int core) {
    if (core == avoided || cores.size() < shares.size()) return;
    cpu_set_t others = set_of(cores), wanted = others, found;
    if (avoided >= 0) CPU_CLR(avoided, &wanted);
    if (pthread_getaffinity_np(workers.front(), sizeof(found), &found) != 0 ||
        !CPU_EQUAL(&found, &wanted)) {
      cores.clear();
      return;
    }
    avoided = core;
    CPU_CLR(core, &others);
    for (pthread_t worker : workers) pthread_setaffinity_np(worker, sizeof(others), &others);
  }

  alignas(64) std::atomic<uint32_t> job{0};
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<uint64_t> gate{0};  // kOpen, and the number of workers inside
  alignas(64) std::atomic<bool> busy{false};
  TaskFunction function = nullptr;
  const void* context = nullptr;
  size_t active = 0;
  std::vector<Share> shares;
  std::vector<pthread_t> workers;
  std::vector<int> cores;  // That workers are moved among; none where each is bound to its own.
  int avoided = -1;        // The one among them that they keep off.
  const uint32_t born = forks();

  /// Whether the workers are those of a parent, and not here.
  bool orphaned() const { return born != forks(); }
};

int usable_cores() {
  const int most = static_cast<int>(allowed_cores().size());
  // More threads than the quota would use it up in a part of each period, and stand still then.
  return std::min(most, cores_by_quota().value_or(most));
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options) {
  if (options.threads < 0 || options.threads > kMostThreads) {
    throw Error(ErrorKind::kInput, "threads: wanted 0 (one for each core) to " +
                                       std::to_string(kMostThreads) + ", got " +
                                       std::to_string(options.threads));
  }
  std::vector<int> cores = allowed_cores();
  threads_ = options.threads == 0 ? usable_cores() : options.threads;
  state_ = std::make_unique<State>(threads_);
  if (!options.pin) state_->cores = cores;
  std::chrono::microseconds spin(options.spin_microseconds);
  const SignalsBlocked blocked;
  state_->workers.reserve(static_cast<size_t>(threads_));
  for (int i = 1; i < threads_; ++i) {
    if (const int failed = state_->add_worker(spin); failed != 0) {
      stop();
      throw Error(ErrorKind::kDevice, "cpu:0: wanted " + std::to_string(threads_) +
                                          " threads, got " + std::to_string(i) + ": " +
                                          std::strerror(failed));
    }
    if (options.pin) {
      cpu_set_t set = set_of({cores[static_cast<size_t>(i) % cores.size()]});
      pthread_setaffinity_np(state_->workers.back(), sizeof(set), &set);
    }
  }
}

ThreadPool::~ThreadPool() {
  if (state_->orphaned()) {
    // There is nobody to join or to detach: what the workers were known by may be that of others.
    state_.release();
    return;
  }
  stop();
}

void ThreadPool::stop() {
  state_->stopping.store(true, std::memory_order_release);
  state_->announce(state_->workers.size());
  for (pthread_t worker : state_->workers) pthread_join(worker, nullptr);
}

void ThreadPool::run(TaskFunction function, const void* context, int64_t tasks, int64_t together) {
  State& state = *state_;
  if (threads_ == 1 || tasks <= 1 || state.orphaned() ||
      state.busy.exchange(true, std::memory_order_acquire)) {
    if (tasks > 0) function(context, 0, tasks);
    return;
  }
  state.function = function;
  state.context = context;
  int64_t active = std::min<int64_t>(threads_, tasks);
  state.active = static_cast<size_t>(active);
  int64_t begin = 0;
  for (int64_t i = 0; i < active; ++i) {
    State::Share& share = state.shares[static_cast<size_t>(i)];
    int64_t size = tasks / active + (i < tasks % active ? 1 : 0);
    share.next.store(begin, std::memory_order_relaxed);
    share.end = begin += size;
    share.together = together;
  }
  state.gate.fetch_or(kOpen, std::memory_order_release);
  state.announce(state.active - 1);
  state.work(0);
  // All tasks are claimed; those who claimed one are still inside the gate.
  state.gate.fetch_and(~kOpen, std::memory_order_acquire);
  for (int spins = 0; state.gate.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < 4096) {
      pause();
    } else {
      sched_yield();
    }
  }
  state.busy.store(false, std::memory_order_release);
}

}  // namespace heddle
