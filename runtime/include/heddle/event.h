#pragma once

#include <cstdint>
#include <memory>

#include "heddle/live.h"

namespace heddle {

class Device;

/// A queue of work on a device: `Device::stream` makes one of a driver's handle. The default one is
/// the device's own, the only one that a CPU has.
struct Stream {
  Stream() {}  // no aggregate: `{&view, 1}` is a span of views, and no stream
  static Stream of(void* handle, uint64_t id) {
    Stream stream;
    stream.handle = handle;
    stream.id = id;
    return stream;
  }

  void* handle = nullptr;
  uint64_t id = 0;  ///< No other stream of the device ever has the same.
};

/// A point in the work of a stream.
class Event : Counted<Event> {
 public:
  using Counted<Event>::live;
  virtual ~Event() = default;

  virtual const Device* device() const = 0;
  virtual Stream stream() const = 0;

  /// Whether the work before this point is done. Throws a device error where the device is lost.
  virtual bool reached() = 0;

  /// Waits for this point. Throws an input error where the call that it ends, or one whose outputs
  /// that call has read, refused its input's values; a device error where the device is lost.
  virtual void synchronize() = 0;

  /// Makes what `stream` of `device` is given from now on wait for this point, without the host.
  virtual void order(Device& device, Stream stream) = 0;

  /// Keeps `owner` alive until this point is reached.
  virtual void hold(std::shared_ptr<void> owner) = 0;
};

}  // namespace heddle
