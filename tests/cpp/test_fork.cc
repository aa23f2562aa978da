#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "heddle/fork.h"
#include "heddle/thread_pool.h"
#include "support.h"

using namespace heddle;
using namespace heddle::test;

namespace {

/// Forks; the child ends with what `body` returns, or dies where it takes 20 seconds.
template <class Body>
int status_of_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

/// Counts tasks and the calls that they came in.
struct Calls {
  static void run(const void* context, int64_t first, int64_t last) {
    auto& calls = *static_cast<const Calls*>(context);
    calls.tasks += last - first;
    ++calls.count;
  }

  mutable std::atomic<int64_t> tasks{0}, count{0};
};

void sleep_a_while() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

}  // namespace

TEST_CASE("fork: a child knows that it is one") {
  const uint32_t before = forks();
  CHECK(status_of_child([&] { return forks() == before + 1; }) == 0);
  CHECK(forks() == before);
}

TEST_CASE("fork: a child runs all tasks in one call, and keeps its cores") {
  ThreadPool pool({2, false, 20});
  sleep_a_while();  // the worker goes to sleep: a call would move it off this core
  CHECK(status_of_child([&] {
          cpu_set_t before, after;
          Calls calls;
          ::sched_getaffinity(0, sizeof(before), &before);
          pool.run(Calls::run, &calls, 100);
          ::sched_getaffinity(0, sizeof(after), &after);
          return calls.tasks == 100 && calls.count == 1 && CPU_EQUAL(&before, &after);
        }) == 0);
}

TEST_CASE("fork: a child drops its parent's pool, and its own has workers to the end") {
  auto pool = std::make_unique<ThreadPool>(ThreadPoolOptions{4, false, 20});
  sleep_a_while();
  CHECK(status_of_child([&] {
          auto own = std::make_unique<ThreadPool>(ThreadPoolOptions{4, false, 20});
          pool.reset();
          Calls calls;
          own->run(Calls::run, &calls, 100);
          own.reset();
          return calls.tasks == 100 && calls.count > 1;
        }) == 0);
}

TEST_CASE("fork: a mutex is free in a child") {
  ForkSafeMutex mutex;
  std::atomic<bool> held{false};
  std::thread holder([&] {
    std::lock_guard lock(mutex);
    held = true;
    sleep_a_while();
  });
  while (!held) std::this_thread::yield();
  CHECK(status_of_child([&] {
          std::lock_guard lock(mutex);
          return true;
        }) == 0);
  holder.join();
}

TEST_CASE("fork: while other threads call a model, which a child then calls") {
  auto model = tiny_model();
  auto call = [&] {
    for (int64_t batch = 1; batch < 20; ++batch) {
      Tiny tiny(batch);
      model->execute(tiny.in(), tiny.out());
    }
  };
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      while (!stop) call();
    });
  }
  int failures = 0;
  for (int i = 0; i < 60 && failures == 0; ++i) {
    failures += status_of_child([&] { return call(), true; }) != 0;
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  CHECK(failures == 0);
}
