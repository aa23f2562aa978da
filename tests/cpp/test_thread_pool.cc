#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "heddle/thread_pool.h"
#include "support.h"

using namespace heddle;

namespace {

/// Counts how often each task ran.
struct Tasks {
  explicit Tasks(size_t count) : runs(count) {}

  static void run(const void* context, int64_t first, int64_t last) {
    auto& tasks = *static_cast<const Tasks*>(context);
    for (int64_t i = first; i < last; ++i) {
      tasks.runs[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
    }
  }

  bool each(int wanted) const {
    for (const std::atomic<int>& count : runs) {
      if (count.load() != wanted) return false;
    }
    return true;
  }

  mutable std::vector<std::atomic<int>> runs;
};

/// Keeps the ranges of tasks.
struct Claims {
  static void run(const void* context, int64_t first, int64_t last) {
    auto& claims = *static_cast<const Claims*>(context);
    std::lock_guard<std::mutex> lock(claims.mutex);
    claims.ranges.emplace_back(first, last);
  }

  mutable std::mutex mutex;
  mutable std::vector<std::pair<int64_t, int64_t>> ranges;
};

/// Tasks that wait for each other, so that each is on a thread of its own.
struct Assembly {
  static void run(const void* context, int64_t first, int64_t last) {
    auto& assembly = *static_cast<const Assembly*>(context);
    assembly.present += static_cast<int>(last - first);
    while (assembly.present.load() < assembly.wanted) std::this_thread::yield();
  }

  int wanted;
  mutable std::atomic<int> present{0};
};

/// The least stack of all threads but the caller.
struct Stacks {
  static void run(const void* context, int64_t first, int64_t last) {
    auto& stacks = *static_cast<const Stacks*>(context);
    if (pthread_self() != stacks.caller) {
      pthread_attr_t attributes;
      pthread_getattr_np(pthread_self(), &attributes);
      size_t size = 0;
      pthread_attr_getstacksize(&attributes, &size);
      pthread_attr_destroy(&attributes);
      size_t least = stacks.least_of_workers;
      while (size < least && !stacks.least_of_workers.compare_exchange_weak(least, size)) {
      }
    }
    Assembly::run(&stacks.assembly, first, last);
  }

  const pthread_t caller = pthread_self();
  Assembly assembly{3};
  mutable std::atomic<size_t> least_of_workers{std::numeric_limits<size_t>::max()};
};

}  // namespace

TEST_CASE("thread pool: workers have room for what kernels keep on the stack") {
  pthread_attr_t usual, small;
  REQUIRE(pthread_getattr_default_np(&usual) == 0);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 192 << 10);
  REQUIRE(pthread_setattr_default_np(&small) == 0);
  {
    Stacks stacks;
    ThreadPool pool({3, false, 20});
    pool.run(Stacks::run, &stacks, 3);
    CHECK(stacks.assembly.present == 3);
    CHECK(stacks.least_of_workers >= (2 << 20));
  }
  pthread_setattr_default_np(&usual);
}

TEST_CASE("thread pool: each task runs once, for any number of threads and tasks") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool({threads, false, 20});
    CHECK(pool.threads() == threads);
    for (size_t count : {0, 1, 2, 3, 7, 8, 9, 64, 1000}) {
      Tasks tasks(count);
      pool.run(Tasks::run, &tasks, static_cast<int64_t>(count));
      REQUIRE(tasks.each(1));
    }
  }
}

TEST_CASE("thread pool: tasks that go together are claimed at once") {
  ThreadPool pool({3, false, 20});
  for (int64_t count : {2, 7, 24, 30}) {
    Claims claims;
    pool.run(Claims::run, &claims, count, 4);
    std::sort(claims.ranges.begin(), claims.ranges.end());
    int64_t end = 0;
    int rests = 0;
    for (auto [first, last] : claims.ranges) {
      REQUIRE(first == end);
      end = last;
      rests += (last - first) % 4 != 0;
    }
    REQUIRE(end == count);
    // Whole fours, and what is left of each of three shares.
    REQUIRE(rests <= 3);
    REQUIRE(static_cast<int64_t>(claims.ranges.size()) <= count / 4 + 3);
  }
}

TEST_CASE("thread pool: more that go together than there are tasks") {
  ThreadPool pool({4, false, 20});
  for (int round = 0; round < 100; ++round) {
    Claims claims;
    pool.run(Claims::run, &claims, 1000, std::numeric_limits<int64_t>::max());
    std::sort(claims.ranges.begin(), claims.ranges.end());
    REQUIRE(claims.ranges.size() == 4);  // a share each
    for (size_t i = 0; i < 4; ++i) {
      const auto first = static_cast<int64_t>(250 * i);
      REQUIRE(claims.ranges[i] == std::make_pair(first, first + 250));
    }
  }
}

TEST_CASE("thread pool: many jobs back to back, and after sleep") {
  ThreadPool pool({4, false, 20});
  for (int round = 0; round < 3000; ++round) {
    Tasks tasks(16);
    pool.run(Tasks::run, &tasks, 16);
    REQUIRE(tasks.each(1));
    if (round % 300 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_CASE("thread pool: idle workers leave the processors to others") {
  ThreadPool pool({4, false, 100});
  Tasks tasks(64);
  pool.run(Tasks::run, &tasks, 64);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  timespec before, after;
  REQUIRE(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  REQUIRE(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after) == 0);
  const auto used = (after.tv_sec - before.tv_sec) * 1'000'000'000 + after.tv_nsec - before.tv_nsec;
  CHECK(used < 50'000'000);  // Three that spin would use 100 ms of each core.
}

TEST_CASE("thread pool: a small job wakes few of many workers, a large one all") {
  constexpr int kThreads = 1000, kJobs = 300, kTasks = 4;
  ThreadPool pool({kThreads, false, 0});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  rusage before, after;
  REQUIRE(::getrusage(RUSAGE_SELF, &before) == 0);
  for (int job = 0; job < kJobs; ++job) {
    Tasks tasks(kTasks);
    pool.run(Tasks::run, &tasks, kTasks);
    REQUIRE(tasks.each(1));
  }
  REQUIRE(::getrusage(RUSAGE_SELF, &after) == 0);
  // A worker that is woken goes back to sleep; all of them would do it 300,000 times.
  CHECK(after.ru_nvcsw - before.ru_nvcsw < 30 * kJobs * kTasks);
  Assembly assembly{kThreads};
  pool.run(Assembly::run, &assembly, kThreads);
  CHECK(assembly.present == kThreads);
}

TEST_CASE("thread pool: many callers at once") {
  ThreadPool pool({2, false, 20});
  std::vector<std::thread> callers;
  std::atomic<int> failures{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        Tasks tasks(33);
        pool.run(Tasks::run, &tasks, 33);
        if (!tasks.each(1)) ++failures;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(failures == 0);
}

TEST_CASE("thread pool: a task that uses the pool itself runs alone") {
  struct Nested {
    ThreadPool pool{{2, false, 20}};
    mutable Tasks inner{10};
  } nested;
  nested.pool.run(
      [](const void* context, int64_t first, int64_t last) {
        const Nested& self = *static_cast<const Nested*>(context);
        for (int64_t i = first; i < last; ++i) {
          const_cast<ThreadPool&>(self.pool).run(Tasks::run, &self.inner, 10);
        }
      },
      &nested, 4);
  CHECK(nested.inner.each(4));
}

TEST_CASE("thread pool: pinned workers work") {
  ThreadPool pool({2, true, 20});
  Tasks tasks(100);
  pool.run(Tasks::run, &tasks, 100);
  CHECK(tasks.each(1));
}

TEST_CASE("thread pool: a forked child computes without workers, and ends") {
  auto pool = std::make_unique<ThreadPool>(ThreadPoolOptions{2, false, 20});
  pid_t child = ::fork();
  if (child == 0) {
    Tasks tasks(100);
    pool->run(Tasks::run, &tasks, 100);
    bool fine = tasks.each(1);
    pool.reset();
    ::_exit(fine ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("thread pool: numbers of threads that nobody has") {
  for (int threads : {-1, 65537}) {
    ThreadPoolOptions options;
    options.threads = threads;
    Error error = test::caught([&] { ThreadPool pool(options); });
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(std::string(error.what()) ==
          "threads: wanted 0 (one for each core) to 65536, got " + std::to_string(threads));
  }
}

TEST_CASE("thread pool: threads that the system refuses") {
  pid_t child = ::fork();
  if (child == 0) {
    rlimit none{1, 1};
    bool limited = ::setrlimit(RLIMIT_NPROC, &none) == 0;
    if (::getuid() == 0) limited = limited && ::setuid(65534) == 0;  // root has no such limit
    try {
      ThreadPool pool({4, false, 20});
    } catch (const Error& error) {
      std::string text = error.what();
      bool fine = limited && error.kind() == ErrorKind::kDevice &&
                  text.rfind("cpu:0: wanted 4 threads, got 1: ", 0) == 0;
      ::_exit(fine ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
