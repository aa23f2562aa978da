#include "heddle/cuda_driver.h"

#include <dlfcn.h>

#include "heddle/error.h"

namespace heddle::cuda {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const Driver& Driver::instance() {
  static const Driver* driver = [] {
    auto* loaded = new Driver;
    loaded->problem_ = loaded->load();
    return loaded;
  }();
  return *driver;
}

const Driver& Driver::get() {
  const Driver& driver = instance();
  if (!driver.problem_.empty()) throw Error(ErrorKind::kDevice, driver.problem_);
  return driver;
}

std::string Driver::unavailable() { return instance().problem_; }

std::string Driver::load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return "cuda: wanted the NVIDIA driver's libcuda.so.1, but it could not be opened: " +
           std::string(dlerror());
  }
  // The version comes first: an old driver is refused as such, not for a function that it lacks.
  get_version = reinterpret_cast<decltype(get_version)>(dlsym(library, "cuDriverGetVersion"));
  if (get_version == nullptr || get_version(&version_) != kSuccess) {
    return "cuda: libcuda.so.1 does not tell its version: not an NVIDIA driver";
  }
  if (version_ < kOldestDriver) {
    return "cuda: wanted a driver for CUDA " + version_text(kOldestDriver) +
           " or newer, got one for CUDA " + version_text(version_);
  }
#define HEDDLE_CUDA_LOAD(member, symbol, parameters)                                              \
  member = reinterpret_cast<decltype(member)>(dlsym(library, symbol));                            \
  if (member == nullptr) {                                                                        \
    return "cuda: the driver for CUDA " + version_text(version_) + " lacks the function " symbol; \
  }
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_CUDA_LOAD)
#undef HEDDLE_CUDA_LOAD
  if (Result result = init(0); result != kSuccess) return "cuda: cuInit: " + explain(result);
  if (Result result = count_devices(&device_count_); result != kSuccess) {
    return "cuda: cuDeviceGetCount: " + explain(result);
  }
  if (device_count_ == 0) return "cuda: wanted a device, but the driver has none";
  return "";
}

std::string Driver::explain(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name(result, &name) != kSuccess || name == nullptr) {
    return "error " + std::to_string(result);
  }
  std::string message = name;
  if (error_string(result, &text) == kSuccess && text != nullptr) {
    message += std::string(" (") + text + ")";
  }
  return message;
}

void Driver::check(Result result, const std::string& where) const {
  if (result != kSuccess) throw Error(ErrorKind::kDevice, where + ": " + explain(result));
}

}  // namespace heddle::cuda
