#include "heddle/cuda_program.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "heddle/buffer.h"
#include "heddle/error.h"
#include "heddle/program.h"

namespace heddle::cuda {
namespace {

std::string archs(const Artifact& artifact, const KernelRecord& kernel) {
  std::string text;
  for (const CodeRecord& code : artifact.codes(kernel)) {
    text += (text.empty() ? "" : ", ") + std::string(artifact.text(code.arch));
    text += code.format == CodeFormat::kPtx ? " (ptx)" : "";
  }
  return text.empty() ? "none" : text;
}

template <class Number>
std::string grid_text(const Number* grid) {
  return std::to_string(grid[0]) + " x " + std::to_string(grid[1]) + " x " +
         std::to_string(grid[2]);
}

/// What a kernel is given in place of a tensor map that the device cannot follow.
constexpr EncodedTensorMap kNoTensorMap{};

/// A tensor map as the device reads it, for a tensor at `address`.
EncodedTensorMap encode(const Driver& driver, const TensorMap& map, void* address) {
  const uint32_t rank = map.record->shape.count;
  bool fits = reinterpret_cast<uintptr_t>(address) % 16 == 0;
  uint64_t shape[kMaxMapRank], strides[kMaxMapRank];  // here the innermost axis comes first
  uint32_t box[kMaxMapRank], steps[kMaxMapRank];
  for (uint32_t axis = 0; axis < rank; ++axis) {
    const uint32_t from = rank - 1 - axis;
    shape[axis] = static_cast<uint64_t>(map.shape[from]);
    box[axis] = map.record->box[from];
    steps[axis] = 1;
    fits = fits && map.shape[from] > 0 && map.shape[from] <= int64_t{1} << 32;
    if (axis == 0) continue;
    strides[axis - 1] = static_cast<uint64_t>(map.strides[from]);
    fits = fits && map.strides[from] % 16 == 0 && map.strides[from] < int64_t{1} << 40;
  }
  if (!fits) return kNoTensorMap;
  // Elements are only moved, so that their size is all that matters of their type.
  int type = 0, swizzle = 0;
  for (uint32_t item = map.record->item; item > 1; item /= 2) ++type;
  for (uint32_t bytes = map.record->swizzle; bytes > 16; bytes /= 2) ++swizzle;
  constexpr int kTypes[] = {0, 1, 2, 4};  // CU_TENSOR_MAP_DATA_TYPE_UINT8, 16, 32, 64
  EncodedTensorMap encoded;
  driver.check(driver.encode_tensor_map(&encoded, kTypes[type], rank, address, shape, strides, box,
                                        steps, 0, swizzle, kPromoteTo256Bytes, 0),
               "cuda: cuTensorMapEncodeTiled");
  return encoded;
}

std::string label(const Routine& routine, const Step& step) {
  return std::string(routine.artifact->text(step.instruction->label));
}

}  // namespace

CudaProgram::CudaProgram(CudaDevice& device, const Artifact& artifact, const ProgramRecord& program)
    : device_(device),
      driver_(device.driver()),
      overlaps_((program.flags & kProgramOverlaps) != 0),
      graphs_(std::make_unique<GraphCache>(device)) {
  Current current(*device_.context());
  try {
    for (const KernelRecord& record : artifact.kernels(program)) load(artifact, record);
  } catch (...) {
    unload();
    throw;
  }
}

CudaProgram::~CudaProgram() {
  settle();
  device_.forget(*this);
  if (driver_.context_push(device_.context()->handle()) != kSuccess) return;
  unload();
  Context popped;
  driver_.context_pop(&popped);
}

void CudaProgram::unload() noexcept {
  graphs_.reset();
  for (const LoadedKernel& kernel : kernels_) {
    if (kernel.module != nullptr) driver_.module_unload(kernel.module);
  }
}

void CudaProgram::load(const Artifact& artifact, const KernelRecord& record) {
  const std::string name(artifact.text(record.name));
  const std::string where = device_.text() + ": kernel " + name;
  const auto codes = codes_for(artifact, record, device_.info().major, device_.info().minor);
  if (codes.empty()) {
    throw Error(
        ErrorKind::kDevice,
        where + ": wanted code that this device runs, the artifact has " + archs(artifact, record));
  }
  LoadedKernel& kernel = kernels_.emplace_back();
  kernel.name = name;
  for (const CodeRecord* code : codes) {
    plan(artifact, record, *code, where, &kernel);
    // A cubin of an assembler that is newer than the driver is not read; the PTX beside it is.
    const bool last = code == codes.back() || code->format == CodeFormat::kPtx;
    if (load_module(artifact, *code, where, last, &kernel)) break;
  }
  if (kernel.launch.shared > 0) {  // with what is static it may be more than is given unasked
    driver_.check(
        driver_.function_set(kernel.function, kMaxDynamicSharedSize,
                             static_cast<int>(kernel.launch.shared)),
        where + ": asking for " + std::to_string(kernel.launch.shared) + " bytes of shared memory");
  }
}

void CudaProgram::plan(const Artifact& artifact, const KernelRecord& record, const CodeRecord& code,
                       const std::string& where, LoadedKernel* kernel) const {
  const LaunchRecord& launch = artifact.launches(record)[code.launch];
  if (launch.shared > static_cast<unsigned>(device_.shared_limit())) {
    throw Error(ErrorKind::kDevice, where + ": wanted " + std::to_string(launch.shared) +
                                        " bytes of shared memory, the device has " +
                                        std::to_string(device_.shared_limit()));
  }
  kernel->arch = artifact.text(code.arch);
  kernel->launch = launch;
  kernel->number = code.launch;
  kernel->first_map = 0;
  for (uint32_t i = 0; i < code.launch; ++i) {
    kernel->first_map += artifact.launches(record)[i].tensor_maps;
  }
  kernel->most_blocks = 0;
  if (launch.resident > 0) {
    const unsigned room = launch.resident * static_cast<unsigned>(device_.info().multiprocessors);
    kernel->most_blocks = std::max(room / launch.cluster, 1u) * launch.cluster;
  }
}

bool CudaProgram::load_module(const Artifact& artifact, const CodeRecord& code,
                              const std::string& where, bool last, LoadedKernel* kernel) const {
  char log[2048] = {};
  int options[2] = {kJitErrorLog, kJitErrorLogBytes};
  void* values[2] = {log, reinterpret_cast<void*>(sizeof log - 1)};
  Result result = driver_.module_load(&kernel->module, artifact.code(code), 2, options, values);
  if (result != kSuccess && result != kOutOfMemory && !last) return false;
  if (result == kUnsupportedPtxVersion) {
    throw Error(ErrorKind::kDevice,
                where + ": the driver for CUDA " + version_text(driver_.version()) +
                    " is too old for the artifact's PTX: " + driver_.explain(result));
  }
  if (result != kSuccess) {
    throw Error(ErrorKind::kDevice, where + ": loading its " + kernel->arch + " code: " +
                                        driver_.explain(result) + (log[0] ? ": " : "") + log);
  }
  const std::string symbol(artifact.text(code.symbol));
  result = driver_.module_function(&kernel->function, kernel->module, symbol.c_str());
  if (result != kSuccess && !last) {  // a driver may read the code no sooner than here
    driver_.module_unload(std::exchange(kernel->module, nullptr));
    return false;
  }
  driver_.check(result, where + ": looking up " + symbol);
  return true;
}

void CudaProgram::run(const Routine& routine, const Call& call) const {
  device_.require();
  Current current(*device_.context());
  device_.retire();
  device_.raise_refusal(*this, call.stream);
  if (routine.steps.empty()) return;
  for (const Step& step : routine.steps) check_grid(routine, step);
  std::vector<std::shared_ptr<CudaEvent>> sources;
  for (const Storage* storage : call.read) {
    storage->uses()->order_read(device_, call.stream);
    auto written = std::static_pointer_cast<CudaEvent>(storage->uses()->written());
    if (written != nullptr && written->matters()) sources.push_back(std::move(written));
  }
  for (const Storage* storage : call.written) storage->uses()->order_write(device_, call.stream);
  std::shared_ptr<CudaEvent> end;
  Report told;
  try {
    launch(routine, call);
    report(routine, call, &told);
    end = CudaEvent::record(device_, call.stream, std::move(sources), told);
  } catch (...) {
    give_up(call);
    if (told.words.data != nullptr) device_.context()->give_back(told.words);
    throw;
  }
  end->watch();
  // Who reads an output is told what was refused; for all others the call is just over.
  const std::shared_ptr<CudaEvent> plain = end->plain();
  for (const Storage* storage : call.read) storage->uses()->note_read(plain);
  for (const Storage* storage : call.written) storage->uses()->note_write(end);
  if (call.scratch != nullptr) call.scratch->uses()->note_write(plain);
}

void CudaProgram::launch(const Routine& routine, const Call& call) const {
  auto record = [&](Stream stream) { give(routine, call, stream, false); };
  if (!graphs_->launch(routine, call.pointers, call.pointer_count, device_.queue(call.stream),
                       std::ref(record))) {
    give(routine, call, call.stream, overlaps_);
  }
}

void CudaProgram::report(const Routine& routine, const Call& call, Report* report) const {
  *report = {this, *call.plan, {}};
  if (routine.checks == 0) return;
  const StreamHandle stream = device_.queue(call.stream);
  const auto words = reinterpret_cast<Address>(call.status);
  const size_t bytes = static_cast<size_t>(routine.checks) * kStatusWords * sizeof(int64_t);
  report->words = device_.context()->take_block(bytes);
  Result result = driver_.copy_to_host(report->words.data, words, bytes, stream);
  if (result == kSuccess) result = driver_.fill_bytes(words, 0, bytes, stream);
  device_.check(result, "reading the status");
}

// What was started may not outlive its buffers, and what is zero between calls stays so.
void CudaProgram::give_up(const Call& call) const noexcept {
  const StreamHandle stream = device_.queue(call.stream);
  driver_.fill_bytes(reinterpret_cast<Address>(call.status), 0, call.zeros, stream);
  driver_.stream_synchronize(stream);
}

void CudaProgram::enqueue(const Routine& routine, const Call& call) const {
  for (const Step& step : routine.steps) check_grid(routine, step);
  give(routine, call, call.stream, overlaps_);
}

void CudaProgram::give(const Routine& routine, const Call& call, Stream stream,
                       bool behind_kernel) const {
  for (const Step& step : routine.steps) {
    behind_kernel = start(routine, step, call, stream, behind_kernel);
  }
}

const int64_t* CudaProgram::grid(const Step& step) const {
  return step.grids + 3 * kernels_[step.kernel].number;
}

void CudaProgram::check_grid(const Routine& routine, const Step& step) const {
  if (step.opcode != Opcode::kDispatch) return;
  const int* limits = device_.grid_limits();
  for (int axis = 0; axis < 3; ++axis) {
    if (grid(step)[axis] <= limits[axis]) continue;
    throw Error(ErrorKind::kInput, label(routine, step) + ": this shape needs a grid of " +
                                       grid_text(grid(step)) + " blocks, " + device_.text() +
                                       " allows " + grid_text(limits));
  }
}

bool CudaProgram::start(const Routine& routine, const Step& step, const Call& call, Stream stream,
                        bool behind_kernel) const {
  if (step.opcode == Opcode::kCopy) {
    const auto source = reinterpret_cast<Address>(call.pointers[step.arguments[0]]);
    const auto target = reinterpret_cast<Address>(call.pointers[step.arguments[1]]);
    if (source == target) return behind_kernel;  // an output that is its input's memory is one
    device_.check(driver_.copy_on_device(target, source, static_cast<size_t>(step.work),
                                         device_.queue(stream)),
                  label(routine, step));
    return false;
  }
  const LoadedKernel& kernel = kernels_[step.kernel];
  // A parameter is passed by the address of its value: pointers, dims, tensor maps.
  thread_local std::vector<void*> parameters;
  parameters.clear();
  for (uint32_t i = 0; i < step.argument_count; ++i) {
    parameters.push_back(const_cast<void**>(&call.pointers[step.arguments[i]]));
  }
  for (uint32_t i = 0; i < step.dim_count; ++i) {
    parameters.push_back(const_cast<int64_t*>(&step.dims[i]));
  }
  EncodedTensorMap maps[kMaxTensorMaps];
  for (uint32_t i = 0; i < kernel.launch.tensor_maps; ++i) {
    const TensorMap& map = step.tensor_maps[kernel.first_map + i];
    maps[i] = encode(driver_, map, call.pointers[step.arguments[map.record->argument]]);
    parameters.push_back(&maps[i]);
  }
  const int64_t* blocks = grid(step);
  LaunchAttribute attributes[2] = {{kLaunchCluster, 0, {kernel.launch.cluster, 1, 1}},
                                   {kLaunchProgrammatic, 0, {1}}};
  LaunchConfig config{{static_cast<unsigned>(blocks[0]), static_cast<unsigned>(blocks[1]),
                       static_cast<unsigned>(blocks[2])},
                      {kernel.launch.block[0], kernel.launch.block[1], kernel.launch.block[2]},
                      kernel.launch.shared,
                      device_.queue(stream),
                      attributes,
                      0};
  if (kernel.most_blocks > 0) config.grid[0] = std::min(config.grid[0], kernel.most_blocks);
  const bool clustered = kernel.launch.cluster > 1;
  // Only a kernel lets the next one start before its own end, and graphs know of it since 12.3. In
  // front of a run may be anything: then the driver finds out.
  const bool overlaps = behind_kernel && driver_.version() >= kOldestOverlap &&
                        (kernel.launch.flags & kLaunchOverlaps) != 0;
  if (!clustered) config.attributes += 1;
  config.attribute_count = static_cast<unsigned>(clustered) + static_cast<unsigned>(overlaps);
  const Result result = driver_.launch(&config, kernel.function, parameters.data(), nullptr);
  device_.check(result, "launching kernel " + kernel.name + " for " + label(routine, step));
  return true;
}

void CudaProgram::add_kernels(const Routine& routine, std::vector<std::string>* names) const {
  for (const Step& step : routine.steps) {
    if (step.opcode != Opcode::kDispatch) continue;
    const std::string& name = kernels_[step.kernel].name;
    if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
  }
}

}  // namespace heddle::cuda
