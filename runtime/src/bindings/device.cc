#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <thread>
#include <utility>

#include "bindings.h"
#include "heddle/cpu.h"
#include "heddle/cuda_device.h"

namespace heddle::bindings {
namespace {

DeviceName named_device(nb::handle kind, nb::handle index) {
  std::string text;
  int number = -1;
  const bool in_range = nb::try_cast(index, number) && number >= 0;
  if (nb::try_cast(kind, text) && in_range) {
    if (text == "cpu" && number == 0) return {DeviceKind::kCpu, number};
    if (text == "cuda") return {DeviceKind::kCuda, number};
  }
  throw Error(ErrorKind::kDevice,
              "Device: wanted ('cpu', 0) or ('cuda', an index from 0 to 2147483647), got " +
                  text_of(nb::repr(nb::make_tuple(kind, index))));
}

nb::dict cpu_info() {
  nb::dict archs;
  bool amx = true;
  for (const char* arch : kCpuArchs) {
    const std::vector<std::string> missing = missing_features(arch);
    archs[arch] = missing;
  }
  for (const std::string& feature : missing_features("sapphirerapids")) {
    amx = amx && feature.rfind("amx", 0) != 0;
  }
  nb::dict info;
  info["cores"] = std::thread::hardware_concurrency();
  info["usable"] = usable_cores();
  info["amx"] = amx;
  info["missing"] = archs;
  return info;
}

nb::dict memory_of(nb::handle name) {
  const std::shared_ptr<Device> device = memory_device(device_from(name, "memory"));
  const MemoryCounters& counters = device->memory();
  const std::pair<const char*, MemoryKind> kinds[] = {{"weights", MemoryKind::kWeights},
                                                      {"state", MemoryKind::kState},
                                                      {"arenas", MemoryKind::kArenas},
                                                      {"outputs", MemoryKind::kOutputs},
                                                      {"buffers", MemoryKind::kBuffers}};
  nb::dict found;
  found["live"] = counters.live();
  found["peak"] = counters.peak();
  found["reserved"] = device->reserved();
  for (const auto& [text, kind] : kinds) found[text] = counters.live(kind);
  return found;
}

}  // namespace

DeviceName device_from(nb::handle device, const char* where) {
  if (nb::isinstance<DeviceName>(device)) return nb::cast<DeviceName>(device);
  throw Error(ErrorKind::kInput, std::string(where) +
                                     ": wanted a Device, as CPU() or Accelerator(0), got " +
                                     text_of(nb::repr(device)));
}

DeviceName name_of(const Device& device) { return {device.kind(), device.index()}; }

std::shared_ptr<Device> memory_device(DeviceName name) {
  if (name.kind == DeviceKind::kCuda) return cuda::CudaDevice::open(name.index);
  static auto& host =
      *new std::shared_ptr<Device>(std::make_shared<CpuDevice>(ThreadPoolOptions{/*threads=*/1}));
  return host;
}

void bind_device(nb::module_& module) {
  nb::class_<DeviceName>(module, "Device", "A place for memory and programs, by name.")
      .def(nb::new_(&named_device), nb::arg("kind").none(), nb::arg("index").none() = 0)
      .def_prop_ro("kind", [](const DeviceName& name) { return kind_name(name.kind); })
      .def_ro("index", &DeviceName::index)
      .def(nb::self == nb::self)
      .def("__hash__", [](const DeviceName& name) { return std::hash<std::string>()(name.text()); })
      .def("__str__", &DeviceName::text)
      .def("__repr__", [](const DeviceName& name) {
        return name.kind == DeviceKind::kCpu ? std::string("CPU()")
                                             : "Accelerator(" + std::to_string(name.index) + ")";
      });
  module.def("CPU", [] { return DeviceName{}; }, "The host.");
  module.def(
      "Accelerator", [](nb::handle index) { return named_device(nb::str("cuda"), index); },
      nb::arg("index").none() = 0,
      "The GPU with this index; whether it is there shows when it is used.");
  module.def("memory", &memory_of, nb::arg("device").none(),
             "Bytes of Heddle on a device, by kind.");
  module.def("cpu_info", &cpu_info,
             "Cores, those that can be used, whether there is AMX, and what this CPU lacks for "
             "each architecture of code.");
}

}  // namespace heddle::bindings
