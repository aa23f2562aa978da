#pragma once

#include <string>
#include <vector>

#include "heddle/artifact.h"
#include "heddle/cuda_device.h"
#include "heddle/cuda_graphs.h"
#include "heddle/device.h"

namespace heddle {
struct Step;
}

namespace heddle::cuda {

/// A kernel that a driver has loaded.
struct LoadedKernel {
  std::string name;
  std::string arch;
  Module module = nullptr;
  Function function = nullptr;
  LaunchRecord launch{};     ///< The one of the code that was chosen,
  uint32_t number = 0;       ///< its number among the kernel's,
  uint32_t first_map = 0;    ///< and of its first tensor map among theirs.
  unsigned most_blocks = 0;  ///< Along x, as many as may be resident; 0: any number.
};

/// A program's cubins, or its PTX as the driver translates it, on one GPU.
class CudaProgram final : public LoadedCode {
 public:
  /// `device` outlives the program. Throws a device error that names the kernel, the architectures
  /// that the artifact has, and the device.
  CudaProgram(CudaDevice& device, const Artifact& artifact, const ProgramRecord& program);
  ~CudaProgram() override;
  CudaProgram(const CudaProgram&) = delete;
  CudaProgram& operator=(const CudaProgram&) = delete;

  /// Launches every step on the call's stream, as one CUDA graph where this call was seen before,
  /// and does not wait.
  void run(const Routine& routine, const Call& call) const override;
  void settle() const override { device_.settle(this); }

  std::string diagnostics() const override { return graphs_->problem(); }

  void enqueue(const Routine& routine, const Call& call) const override;

  std::string arch(uint32_t kernel) const override { return kernels_[kernel].arch; }

  /// Adds the names of the routine's kernels that are not there yet.
  void add_kernels(const Routine& routine, std::vector<std::string>* names) const;

 private:
  void load(const Artifact& artifact, const KernelRecord& record);
  void plan(const Artifact& artifact, const KernelRecord& record, const CodeRecord& code,
            const std::string& where, LoadedKernel* kernel) const;
  /// False where the driver refuses the code and it is not the `last` that there is.
  bool load_module(const Artifact& artifact, const CodeRecord& code, const std::string& where,
                   bool last, LoadedKernel* kernel) const;
  void check_grid(const Routine& routine, const Step& step) const;
  const int64_t* grid(const Step& step) const;  // of the launch that this device takes
  /// Gives a step to the stream, whose last work is a kernel or is not; tells which it is now.
  bool start(const Routine& routine, const Step& step, const Call& call, Stream stream,
             bool behind_kernel) const;
  /// All of a routine's steps; `behind_kernel` tells of what is in front of the first.
  void give(const Routine& routine, const Call& call, Stream stream, bool behind_kernel) const;
  void launch(const Routine& routine, const Call& call) const;
  void report(const Routine& routine, const Call& call, Report* report) const;
  void give_up(const Call& call) const noexcept;
  void unload() noexcept;

  CudaDevice& device_;
  const Driver& driver_;
  const bool overlaps_;  // main's first kernel what is in front of a run
  std::vector<LoadedKernel> kernels_;
  std::unique_ptr<GraphCache> graphs_;
};

/// The codes that run on compute capability `major`.`minor`, the best first: cubins of the same
/// major and no later minor, the latest first (one whose name ends in a letter: of exactly this
/// capability), then PTX that is not above it, as well ("CUDA C++ Programming Guide",
/// compatibility of cubin and PTX).
std::vector<const CodeRecord*> codes_for(const Artifact& artifact, const KernelRecord& kernel,
                                         int major, int minor);

}  // namespace heddle::cuda
