#include <immintrin.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "heddle/thread_pool.h"
#include "support.h"

using namespace heddle;

namespace {

/// Two tasks that wait for each other, so that each is on a thread of its own.
struct Meeting {
  static void run(const void* context, int64_t first, int64_t last) {
    auto& meeting = *static_cast<const Meeting*>(context);
    REQUIRE(last - first == 1);
    if (std::this_thread::get_id() != meeting.caller) {
      cpu_set_t mine;
      sched_getaffinity(0, sizeof(mine), &mine);
      meeting.apart = !CPU_ISSET(meeting.core, &mine);
      meeting.worker = ::gettid();
      pthread_sigmask(SIG_SETMASK, nullptr, &meeting.blocked);
      const volatile float small = 3e-21f;
      meeting.product = small * small;  // has no normal form
    }
    for (++meeting.present; meeting.present.load() < 2;) std::this_thread::yield();
  }

  explicit Meeting(int core = 0) : core(core) {}

  const std::thread::id caller = std::this_thread::get_id();
  const int core;
  mutable std::atomic<int> present{0};
  mutable std::atomic<bool> apart{false};
  mutable pid_t worker = 0;  // and what it sees
  mutable sigset_t blocked{};
  mutable float product = 0;
};

}  // namespace

TEST_CASE("workers: who is woken is kept off the caller's core") {
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  if (CPU_COUNT(&allowed) < 2) return;
  std::thread([&] {
    ThreadPool pool({2, false, 20});
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &allowed)) continue;
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(core, &own);
      REQUIRE(sched_setaffinity(0, sizeof(own), &own) == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the worker goes to sleep
      Meeting meeting(core);
      pool.run(Meeting::run, &meeting, 2);
      CHECK(meeting.apart.load());
    }
  }).join();
}

TEST_CASE("workers: they stay where somebody else has moved them") {
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  if (CPU_COUNT(&allowed) < 2) return;
  std::vector<size_t> cores;
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  ThreadPool pool({2, false, 20});
  pid_t worker = 0;
  auto call_from = [&](size_t core) {
    std::thread([&] {
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(core, &own);
      REQUIRE(sched_setaffinity(0, sizeof(own), &own) == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the worker goes to sleep
      Meeting meeting(static_cast<int>(core));
      pool.run(Meeting::run, &meeting, 2);
      worker = meeting.worker;
    }).join();
  };
  call_from(cores[0]);
  cpu_set_t wanted, found;
  CPU_ZERO(&wanted);
  CPU_SET(cores[0], &wanted);
  REQUIRE(sched_setaffinity(worker, sizeof(wanted), &wanted) == 0);
  for (size_t core : {cores[1], cores[0]}) {
    call_from(core);
    REQUIRE(sched_getaffinity(worker, sizeof(found), &found) == 0);
    CHECK(CPU_EQUAL(&found, &wanted));
  }
}

TEST_CASE("workers: signals are for the program's own threads, but for faults") {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  ThreadPool pool({2, false, 20});
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal : {SIGTERM, SIGINT, SIGSEGV}) {
    CHECK(sigismember(&before, signal) == sigismember(&after, signal));
  }
  Meeting meeting;
  pool.run(Meeting::run, &meeting, 2);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGALRM, SIGUSR1, SIGRTMIN}) {
    CHECK(sigismember(&meeting.blocked, signal) == 1);
  }
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
    CHECK(sigismember(&meeting.blocked, signal) == 0);
  }
}

TEST_CASE("workers: they do not inherit how their maker computes") {
  constexpr unsigned kFlushes = 0x8040;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushes);
  ThreadPool pool({2, false, 20});
  Meeting meeting;
  pool.run(Meeting::run, &meeting, 2);
  _mm_setcsr(before);
  CHECK(meeting.product > 0);
}
