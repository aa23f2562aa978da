#include "heddle/cpu.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cpu_code.h"
#include "heddle/buffer.h"
#include "heddle/error.h"

namespace heddle {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = 2 * 1024 * 1024;

size_t machine_memory() {
  static const size_t kBytes =
      static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return kBytes;
}

}  // namespace

CpuDevice::CpuDevice(const ThreadPoolOptions& options)
    : pool_(std::make_shared<ThreadPool>(options)) {}

void* CpuDevice::allocate(size_t size) {
  if (size == 0) return nullptr;
  size_t alignment = size < kHugePage ? kCacheLine : kHugePage;
  void* data = nullptr;
  size_t whole = (size + alignment - 1) / alignment * alignment;
  if (size <= machine_memory()) data = std::aligned_alloc(alignment, whole);
  if (data == nullptr) {
    throw Error(ErrorKind::kDevice, "cpu:0: wanted " + std::to_string(size) +
                                        " bytes of memory, the machine has " +
                                        std::to_string(machine_memory()));
  }
  // A hint: fewer page faults and address translations, and no harm where it is refused. The last
  // page is one only if all of it is asked for: a weight's scales often lie there.
  if (alignment == kHugePage) ::madvise(data, whole, MADV_HUGEPAGE);
  return data;
}

void CpuDevice::release(void* data, Stream, std::vector<std::shared_ptr<Event>>, bool) noexcept {
  std::free(data);
}

void CpuDevice::copy_from_host(void* target, const void* source, size_t size) {
  if (size > 0) std::memcpy(target, source, size);
}

void CpuDevice::copy_to_host(void* target, const void* source, size_t size) {
  if (size > 0) std::memcpy(target, source, size);
}

void CpuDevice::copy(const Storage& source, const Storage& target, size_t size) {
  if (size > 0) std::memcpy(target.data(), source.data(), size);
}

void CpuDevice::clear(void* data, size_t size, Stream) { std::memset(data, 0, size); }

MemoryCounters& CpuDevice::memory() {
  static MemoryCounters counters;
  return counters;
}

std::unique_ptr<LoadedCode> CpuDevice::load(const Artifact& artifact,
                                            const ProgramRecord& program) {
  return std::make_unique<CpuCode>(artifact, program, pool_);
}

}  // namespace heddle
