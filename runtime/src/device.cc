#include "heddle/device.h"

#include "heddle/error.h"

namespace heddle {

std::string device_name(DeviceKind kind, int index) {
  return std::string(kind_name(kind)) + ":" + std::to_string(index);
}

std::string Device::name() const { return device_name(kind(), index()); }

Stream Device::stream(void*) {
  throw Error(ErrorKind::kInput, "stream: wanted none, as " + name() + " has no streams, got one");
}

std::vector<double> Device::replay(const std::function<void(Stream)>&, int) {
  throw Error(ErrorKind::kDevice, "replay: wanted models on a CUDA device, got one on " + name());
}

}  // namespace heddle
