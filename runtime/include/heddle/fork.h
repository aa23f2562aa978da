#pragma once

#include <cstdint>
#include <mutex>

namespace heddle {

/// How many forks lie between the process that asked first and this one. Threads that were made
/// when it was another number are those of a parent, and not here.
uint32_t forks();

/// A mutex that is free in a child of a fork: the fork waits until nobody holds it. Who holds one
/// takes no other lock, and makes none.
class ForkSafeMutex {
 public:
  ForkSafeMutex();
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace heddle
