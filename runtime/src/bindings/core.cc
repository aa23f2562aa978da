#include "bindings.h"
#include "heddle/checksum.h"

namespace heddle::bindings {
namespace {

uint64_t checksum_of(nb::handle bytes) {
  Py_buffer view;
  if (PyObject_GetBuffer(bytes.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const uint64_t value = checksum(view.buf, static_cast<size_t>(view.len));
  PyBuffer_Release(&view);
  return value;
}

}  // namespace
}  // namespace heddle::bindings

NB_MODULE(_core, module) {
  using namespace heddle::bindings;
  module.doc() = "Heddle's C++ runtime.";
  bind_errors(module);
  module.def("checksum", &checksum_of, nanobind::arg("data"),
             "XXH64, seed 0, of the bytes of a contiguous buffer.");
}
