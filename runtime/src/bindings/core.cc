#include <nanobind/stl/string.h>

#include <stdexcept>

#include "argument.h"
#include "bindings.h"
#include "heddle/checksum.h"
#include "heddle/live.h"

namespace heddle::bindings {
namespace {

void update(Checksum& sum, nb::handle bytes) {
  Py_buffer view;
  if (PyObject_GetBuffer(bytes.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  sum.update(view.buf, static_cast<size_t>(view.len));
  PyBuffer_Release(&view);
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

void bind_checksum(nb::module_& module) {
  nb::class_<Checksum>(module, "Checksum", nb::is_final(), "XXH3 of 64 bits, seed 0.")
      .def(nb::init<>())
      .def("update", &update, nb::arg("data"))
      .def_prop_ro("value", &Checksum::value);
}

}  // namespace

std::string text_of(nb::handle text) {
  nb::object bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return PyBytes_AsString(bytes.ptr());
}

bool flag_from(nb::handle flag, const char* where) {
  if (PyBool_Check(flag.ptr())) return flag.is(Py_True);
  throw Error(ErrorKind::kInput,
              std::string(where) + ": wanted True or False, got " + text_of(nb::repr(flag)));
}

int count_from(nb::handle number, int least, const char* where) {
  int count = 0;
  if (nb::try_cast(number, count) && count >= least) return count;
  throw Error(ErrorKind::kInput, std::string(where) + ": wanted an integer from " +
                                     std::to_string(least) + " to 2147483647, got " +
                                     text_of(nb::repr(number)));
}

}  // namespace heddle::bindings

NB_MODULE(_core, module) {
  using namespace heddle::bindings;
  // Its threads could not come back from the runtime: which of them is whose is not known there.
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    throw std::runtime_error("heddle.runtime: wanted the main interpreter, got another one");
  }
  module.doc() = "Heddle's C++ runtime.";
  // What a daemon thread holds when the process ends is no leak; `live_objects` is there for those.
  nanobind::set_leak_warnings(false);
  bind_errors(module);
  bind_device(module);
  bind_cuda(module);
  bind_stream(module);
  bind_buffer(module);
  bind_artifact(module);
  bind_safetensors(module);
  bind_model(module);
  bind_checksum(module);
  module.def("path_text", &path_text, nanobind::arg("path").none(),
             "The text of a path without NUL.");
  module.def(
      "dtype_size", [](nanobind::handle dtype) { return heddle::dtype_size(dtype_from(dtype)); },
      nanobind::arg("dtype"), "Bytes of one element.");
  module.def("live_objects", &live, "How many objects of each kind are alive, by kind.");
}
