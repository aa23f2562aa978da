#include "heddle/fork.h"

#include <pthread.h>

#include <atomic>
#include <set>

namespace heddle {
namespace {

/// What a fork has to know of this process.
struct Process {
  Process();

  void lock() {
    mutex.lock();
    for (ForkSafeMutex* one : mutexes) one->lock();
  }

  void unlock() {
    for (ForkSafeMutex* one : mutexes) one->unlock();
    mutex.unlock();
  }

  std::atomic<uint32_t> forks{0};
  std::mutex mutex;  // of what follows
  std::set<ForkSafeMutex*> mutexes;
};

/// Never destroyed: a fork may come at the end of the process, too.
Process& process() {
  static Process& made = *new Process;
  return made;
}

Process::Process() {
  ::pthread_atfork([] { process().lock(); }, [] { process().unlock(); },
                   [] {
                     process().forks.fetch_add(1, std::memory_order_relaxed);
                     process().unlock();
                   });
}

}  // namespace

uint32_t forks() { return process().forks.load(std::memory_order_relaxed); }

ForkSafeMutex::ForkSafeMutex() {
  std::lock_guard lock(process().mutex);
  process().mutexes.insert(this);
}

ForkSafeMutex::~ForkSafeMutex() {
  std::lock_guard lock(process().mutex);
  process().mutexes.erase(this);
}

}  // namespace heddle
