#include "stream.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "heddle/cuda_device.h"

namespace heddle::bindings {
namespace {

/// The Python class `Stream`.
struct StreamObject {
  std::shared_ptr<cuda::OwnedStream> stream;
};

/// The Python class `Event`.
struct EventObject {
  std::shared_ptr<Device> device;
  std::shared_ptr<Event> event;
};

StreamObject new_stream(nb::handle device) {
  const DeviceName name = device_from(device, "Stream");
  if (name.kind != DeviceKind::kCuda) {
    throw Error(ErrorKind::kDevice, "Stream: wanted a CUDA device, got " + name.text());
  }
  return {std::make_shared<cuda::OwnedStream>(cuda::CudaDevice::open(name.index))};
}

uintptr_t handle_of(const StreamObject& self) {
  return reinterpret_cast<uintptr_t>(self.stream->stream().handle);
}

EventObject record(const StreamObject& self) {
  const std::shared_ptr<cuda::CudaDevice>& device = self.stream->device();
  device->require_running(self.stream->stream());
  return {device, device->record(self.stream->stream())};
}

void wait(const StreamObject& self, nb::handle object) {
  if (!nb::isinstance<EventObject>(object)) {
    throw Error(ErrorKind::kInput,
                std::string("Stream.wait: wanted an Event, got ") + text_of(nb::repr(object)));
  }
  const auto& event = nb::cast<const EventObject&>(object);
  self.stream->device()->require_running(self.stream->stream());
  event.event->order(*self.stream->device(), self.stream->stream());
}

nb::object handle_from(nb::handle object) {
  if (PyLong_Check(object.ptr())) return nb::borrow(object);
  if (nb::hasattr(object, "__cuda_stream__")) return object.attr("__cuda_stream__")()[1];
  for (const char* name : {"cuda_stream", "ptr"}) {
    if (nb::hasattr(object, name)) return object.attr(name);
  }
  const std::string found = text_of(nb::cast<nb::str>(object.type().attr("__name__")));
  throw Error(ErrorKind::kInput,
              "stream: wanted a Stream, one of CuPy or torch, an object with "
              "__cuda_stream__, or the number of a CUstream, got " +
                  found);
}

}  // namespace

Stream stream_from(nb::handle object, Device& device) {
  if (nb::isinstance<StreamObject>(object)) {
    const auto& own = *nb::cast<const StreamObject&>(object).stream;
    if (own.device().get() == &device) {
      own.device()->require_running(own.stream());
      return own.stream();
    }
  }
  uintptr_t handle = 0;
  if (!nb::try_cast(handle_from(object), handle)) {
    throw Error(ErrorKind::kInput, std::string("stream: wanted the number of a CUstream, got ") +
                                       text_of(nb::repr(object)));
  }
  return device.stream(reinterpret_cast<void*>(handle));
}

void bind_stream(nb::module_& module) {
  nb::class_<EventObject>(module, "Event", nb::is_final(), "A point in the work of a stream.")
      .def_prop_ro("done", [](const EventObject& self) { return self.event->reached(); })
      .def(
          "synchronize", [](const EventObject& self) { self.event->synchronize(); },
          nb::call_guard<ReleasedGil>());
  nb::class_<StreamObject>(module, "Stream", nb::is_final(), "A queue of work on a GPU.")
      .def(nb::new_(&new_stream), nb::arg("device").none())
      .def_prop_ro("device",
                   [](const StreamObject& self) { return name_of(*self.stream->device()); })
      .def_prop_ro("handle", &handle_of)
      .def("__cuda_stream__",
           [](const StreamObject& self) { return nb::make_tuple(0, handle_of(self)); })
      .def("record", &record)
      .def("wait", &wait, nb::arg("event").none())
      .def(
          "synchronize",
          [](const StreamObject& self) {
            self.stream->device()->synchronize(self.stream->stream());
          },
          nb::call_guard<ReleasedGil>());
}

}  // namespace heddle::bindings
