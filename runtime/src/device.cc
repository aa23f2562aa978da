#include "heddle/device.h"

#include "heddle/error.h"

namespace heddle {

std::string Device::name() const {
  return (kind() == DeviceKind::kCpu ? "cpu:" : "cuda:") + std::to_string(index());
}

Stream Device::stream(void*) {
  throw Error(ErrorKind::kInput, "stream: wanted none, as " + name() + " has no streams, got one");
}

std::vector<double> Device::replay(const std::function<void(Stream)>&, int) {
  throw Error(ErrorKind::kDevice, "replay: wanted models on a CUDA device, got one on " + name());
}

}  // namespace heddle
