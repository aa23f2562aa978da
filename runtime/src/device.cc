#include "heddle/device.h"

namespace heddle {

std::string Device::name() const {
  return (kind() == DeviceKind::kCpu ? "cpu:" : "cuda:") + std::to_string(index());
}

}  // namespace heddle
