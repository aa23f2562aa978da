#include "argument.h"
#include "bindings.h"
#include "heddle/checksum.h"
#include "heddle/live.h"

namespace heddle::bindings {
namespace {

uint64_t checksum_of(nb::handle bytes) {
  Py_buffer view;
  if (PyObject_GetBuffer(bytes.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const uint64_t value = checksum(view.buf, static_cast<size_t>(view.len));
  PyBuffer_Release(&view);
  return value;
}

nb::dict live() {
  const LiveObjects objects = live_objects();
  nb::dict counts;
  counts["artifacts"] = objects.artifacts;
  counts["storages"] = objects.storages;
  counts["programs"] = objects.programs;
  counts["models"] = objects.models;
  counts["arenas"] = objects.arenas;
  counts["events"] = objects.events;
  return counts;
}

}  // namespace
}  // namespace heddle::bindings

NB_MODULE(_core, module) {
  using namespace heddle::bindings;
  module.doc() = "Heddle's C++ runtime.";
  bind_errors(module);
  bind_device(module);
  bind_cuda(module);
  bind_stream(module);
  bind_buffer(module);
  bind_artifact(module);
  bind_model(module);
  module.def("checksum", &checksum_of, nanobind::arg("data"),
             "XXH3 of 64 bits, seed 0, of the bytes of a contiguous buffer.");
  module.def(
      "dtype_size", [](nanobind::handle dtype) { return heddle::dtype_size(dtype_from(dtype)); },
      nanobind::arg("dtype"), "Bytes of one element.");
  module.def("live_objects", &live, "How many objects of each kind are alive, by kind.");
}
