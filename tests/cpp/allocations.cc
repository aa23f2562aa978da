#include "allocations.h"

#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

#if defined(__has_feature)
#define HEDDLE_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define HEDDLE_ADDRESS_SANITIZER 1
#else
#define HEDDLE_ADDRESS_SANITIZER 0
#endif

namespace {

std::atomic<ptrdiff_t> in_use{0}, peak_use{0};
std::atomic<size_t> calls{0};

#if HEDDLE_ADDRESS_SANITIZER
// The allocator of AddressSanitizer, as of GCC 12, stays locked in a child that is forked while
// another thread is in it; glibc's does not. So no thread is in it then: of all handlers of a fork
// the first that is registered is the last to prepare.
std::mutex allocator;
using Entered = std::lock_guard<std::mutex>;

__attribute__((constructor(101))) void free_in_children() {
  ::pthread_atfork([] { allocator.lock(); }, [] { allocator.unlock(); },
                   [] { allocator.unlock(); });
}
#else
struct Nothing {
} allocator;
struct Entered {
  explicit Entered(Nothing&) {}
};
#endif

void* counted(void* data) {
  if (data == nullptr) throw std::bad_alloc();
  calls.fetch_add(1);
  ptrdiff_t now = in_use.fetch_add(static_cast<ptrdiff_t>(malloc_usable_size(data))) +
                  static_cast<ptrdiff_t>(malloc_usable_size(data));
  ptrdiff_t peak = peak_use.load();
  while (now > peak && !peak_use.compare_exchange_weak(peak, now)) {
  }
  return data;
}

void forget(void* data) {
  if (data != nullptr) in_use.fetch_sub(static_cast<ptrdiff_t>(malloc_usable_size(data)));
  Entered entered(allocator);
  std::free(data);
}

}  // namespace

void* operator new(size_t size) {
  Entered entered(allocator);
  return counted(std::malloc(size > 0 ? size : 1));
}

void* operator new(size_t size, std::align_val_t alignment) {
  size_t unit = static_cast<size_t>(alignment);
  Entered entered(allocator);
  return counted(std::aligned_alloc(unit, (size / unit + 1) * unit));
}

void operator delete(void* data) noexcept { forget(data); }
void operator delete(void* data, size_t) noexcept { forget(data); }
void operator delete(void* data, std::align_val_t) noexcept { forget(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { forget(data); }

namespace heddle::test {

Allocations::Allocations() {
  in_use = 0;
  peak_use = 0;
  calls = 0;
}

size_t Allocations::peak() const { return static_cast<size_t>(peak_use.load()); }

size_t Allocations::count() const { return calls.load(); }

}  // namespace heddle::test
