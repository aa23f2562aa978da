#include <nanobind/stl/string.h>

#include "bindings.h"
#include "heddle/cuda_device.h"

namespace heddle::bindings {
namespace {

int accelerator_count() {
  return cuda::Driver::unavailable().empty() ? cuda::Driver::get().device_count() : 0;
}

nb::dict cuda_info() {
  nb::dict info;
  nb::list devices;
  info["problem"] = cuda::Driver::unavailable();
  info["driver"] = "";
  if (cuda::Driver::unavailable().empty()) {
    info["driver"] = cuda::version_text(cuda::Driver::get().version());
    for (const cuda::DeviceInfo& device : cuda::devices()) {
      nb::dict row;
      row["index"] = device.index;
      row["name"] = device.name;
      row["capability"] = std::to_string(device.major) + "." + std::to_string(device.minor);
      row["memory_bytes"] = device.memory;
      row["multiprocessors"] = device.multiprocessors;
      row["l2_bytes"] = device.l2_bytes;
      devices.append(row);
    }
  }
  info["devices"] = devices;
  return info;
}

}  // namespace

void bind_cuda(nb::module_& module) {
  module.def("accelerator_count", &accelerator_count,
             "How many GPUs can be used; 0 where there is no usable driver.");
  module.def("cuda_info", &cuda_info,
             "Why CUDA cannot be used (or an empty text), the driver's CUDA version, the GPUs.");
}

}  // namespace heddle::bindings
