#pragma once

#include <memory>
#include <vector>

#include "heddle/artifact.h"
#include "heddle/device.h"
#include "heddle/thread_pool.h"

namespace heddle {

/// Memory that is written once and executable from then on, never both.
class CodeMemory {
 public:
  explicit CodeMemory(size_t size);
  ~CodeMemory();
  CodeMemory(const CodeMemory&) = delete;
  CodeMemory& operator=(const CodeMemory&) = delete;

  uint8_t* data() const { return data_; }
  void make_executable();

 private:
  uint8_t* data_ = nullptr;
  size_t size_;
};

/// The CPU images of one program, the best of each kernel that this CPU runs.
class CpuCode final : public LoadedCode {
 public:
  CpuCode(const Artifact& artifact, const ProgramRecord& program, std::shared_ptr<ThreadPool> pool);

  void run(const Routine& routine, const Call& call) const override;
  std::string arch(uint32_t kernel) const override { return kernels_[kernel].arch; }

 private:
  using Function = void (*)(const int64_t* dims, void* const* buffers, int64_t first, int64_t last);
  struct Kernel {
    Function function;
    const char* arch;
    uint32_t launch;  ///< The number of its code's among the kernel's.
  };

  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<CodeMemory> memory_;
  std::vector<Kernel> kernels_;
};

}  // namespace heddle
