#include "cpu_code.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "float_mode.h"
#include "heddle/cpu.h"
#include "heddle/error.h"
#include "heddle/program.h"

namespace heddle {
namespace {

// Below this much work, handing parts to other threads costs more than it saves.
constexpr int64_t kWorkPerHandover = 128 * 1024;

// Bytes of a copy that a thread takes at a time, at least.
constexpr int64_t kCopied = 512 * 1024;

// int3: whoever runs off the end of a kernel stops there.
constexpr int kTrap = 0xCC;

struct Choice {
  const CodeRecord* code;
  const char* arch;
};

[[noreturn]] void refuse(const Artifact& artifact, const KernelRecord& kernel) {
  std::string message = artifact.path() + ": kernel '" + std::string(artifact.text(kernel.name)) +
                        "': wanted code that this CPU runs, got";
  const char* separator = " ";
  for (const CodeRecord& code : artifact.codes(kernel)) {
    message += separator + std::string(artifact.text(code.arch)) + " (which lacks";
    const char* comma = " ";
    for (const std::string& feature : missing_features(artifact.text(code.arch))) {
      message += comma + feature;
      comma = ", ";
    }
    message += ")";
    separator = "; ";
  }
  if (kernel.codes.count == 0) message += " none";
  throw Error(ErrorKind::kDevice, message);
}

Choice choose(const Artifact& artifact, const KernelRecord& kernel,
              const std::vector<const char*>& archs) {
  for (const char* arch : archs) {
    for (const CodeRecord& code : artifact.codes(kernel)) {
      if (artifact.text(code.arch) == arch) return {&code, arch};
    }
  }
  refuse(artifact, kernel);
}

size_t place(size_t* end, const CodeRecord& code) {
  size_t start = (*end + code.alignment - 1) / code.alignment * code.alignment;
  *end = start + code.size;
  return start;
}

/// What the threads of one dispatch share.
struct Dispatch {
  void (*function)(const int64_t*, void* const*, int64_t, int64_t);
  const int64_t* dims;
  void* const* buffers;
};

void run_tasks(const void* context, int64_t first, int64_t last) {
  const auto& dispatch = *static_cast<const Dispatch*>(context);
  dispatch.function(dispatch.dims, dispatch.buffers, first, last);
}

struct Copy {
  uint8_t* target;
  const uint8_t* source;
  int64_t size;
};

void copy_tasks(const void* context, int64_t first, int64_t last) {
  const auto& copy = *static_cast<const Copy*>(context);
  const int64_t start = first * kCopied;
  const int64_t end = std::min(last * kCopied, copy.size);
  std::memcpy(copy.target + start, copy.source + start, static_cast<size_t>(end - start));
}

void copy_by(ThreadPool& pool, void* target, const void* source, int64_t size) {
  const Copy copy{static_cast<uint8_t*>(target), static_cast<const uint8_t*>(source), size};
  pool.run(copy_tasks, &copy, (size + kCopied - 1) / kCopied);
}

int64_t now() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace

CodeMemory::CodeMemory(size_t size) : size_(size) {
  if (size == 0) return;
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorKind::kDevice, "cpu:0: wanted " + std::to_string(size) +
                                        " bytes for code, got: " + std::strerror(errno));
  }
  data_ = static_cast<uint8_t*>(data);
}

CodeMemory::~CodeMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void CodeMemory::make_executable() {
  if (data_ != nullptr && ::mprotect(data_, size_, PROT_READ | PROT_EXEC) != 0) {
    throw Error(ErrorKind::kDevice,
                std::string("cpu:0: wanted executable memory, got: ") + std::strerror(errno));
  }
}

CpuCode::CpuCode(const Artifact& artifact, const ProgramRecord& program,
                 std::shared_ptr<ThreadPool> pool)
    : pool_(std::move(pool)) {
  std::vector<const char*> archs;
  for (const char* arch : kCpuArchs) {
    if (missing_features(arch).empty()) archs.push_back(arch);
  }
  Span<KernelRecord> kernels = artifact.kernels(program);
  std::vector<Choice> choices;
  size_t size = 0;
  for (const KernelRecord& kernel : kernels) {
    choices.push_back(choose(artifact, kernel, archs));
    place(&size, *choices.back().code);
  }
  memory_ = std::make_unique<CodeMemory>(size);
  if (size > 0) std::memset(memory_->data(), kTrap, size);
  size_t end = 0;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const CodeRecord& code = *choices[i].code;
    uint8_t* target = memory_->data() + place(&end, code);
    std::memcpy(target, artifact.code(code), code.size);
    kernels_.push_back(
        {reinterpret_cast<Function>(target + code.entry), choices[i].arch, code.launch});
  }
  memory_->make_executable();
}

void CpuCode::run(const Routine& routine, const Call& call) const {
  const DefaultFloatMode mode;  // as workers have it
  void* buffers[kMaxArguments];
  if (call.times != nullptr) call.times->push_back(now());
  for (const Step& step : routine.steps) {
    for (uint32_t i = 0; i < step.argument_count; ++i) {
      buffers[i] = call.pointers[step.arguments[i]];
    }
    if (step.opcode == Opcode::kCopy) {
      // An output that is its input's memory is a copy already.
      if (buffers[1] != buffers[0]) copy_by(*pool_, buffers[1], buffers[0], step.work);
      if (call.times != nullptr) call.times->push_back(now());
      continue;
    }
    const Kernel& kernel = kernels_[step.kernel];
    const int64_t* grid = step.grids + 3 * kernel.launch;
    if (step.work < kWorkPerHandover || grid[0] == 1) {
      kernel.function(step.dims, buffers, 0, grid[0]);
    } else {
      Dispatch dispatch{kernel.function, step.dims, buffers};
      pool_->run(run_tasks, &dispatch, grid[0], grid[1]);
    }
    if (call.times != nullptr) call.times->push_back(now());
    if (step.check < 0) continue;
    int64_t* word = call.status + kStatusWords * static_cast<size_t>(step.check);
    if (word[0] == 0) continue;
    int64_t status[kStatusWords];
    std::memcpy(status, word, sizeof(status));
    std::memset(word, 0, sizeof(status));
    raise_status(routine, step, status);
  }
}

}  // namespace heddle
