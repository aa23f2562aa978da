#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle {

/// What memory is for.
enum class MemoryKind : uint32_t { kWeights, kState, kArenas, kOutputs, kBuffers };
constexpr size_t kMemoryKinds = 5;

/// Bytes that Heddle has on a device, by kind; counted from many threads.
class MemoryCounters {
 public:
  void add(MemoryKind kind, size_t bytes) {
    kinds_[static_cast<size_t>(kind)].fetch_add(bytes, std::memory_order_relaxed);
    const size_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    size_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void remove(MemoryKind kind, size_t bytes) {
    kinds_[static_cast<size_t>(kind)].fetch_sub(bytes, std::memory_order_relaxed);
    live_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  size_t live() const { return live_.load(std::memory_order_relaxed); }
  size_t peak() const { return peak_.load(std::memory_order_relaxed); }
  size_t live(MemoryKind kind) const {
    return kinds_[static_cast<size_t>(kind)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<size_t>, kMemoryKinds> kinds_{};
  std::atomic<size_t> live_{0};
  std::atomic<size_t> peak_{0};
};

}  // namespace heddle
