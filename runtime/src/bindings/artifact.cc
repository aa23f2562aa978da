#include "heddle/artifact.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings.h"
#include "describe.h"
#include "heddle/mapped_file.h"

namespace heddle::bindings {
namespace {

const char* contents(const Artifact& artifact) {
  return reinterpret_cast<const char*>(artifact.data());
}

std::shared_ptr<const Artifact> load(nb::handle path, nb::handle name) {
  const std::string text = path_text(path);
  const std::string shown = name.is_none() ? text : path_text(name);
  const ReleasedGil released;
  return Artifact::open(text, shown);
}

std::shared_ptr<const Artifact> from_bytes(nb::handle data, nb::handle copy) {
  std::shared_ptr<Py_buffer> view(new Py_buffer{}, [](Py_buffer* held) {
    const HeldGil gil;
    PyBuffer_Release(held);
    delete held;
  });
  if (PyObject_GetBuffer(data.ptr(), view.get(), PyBUF_SIMPLE) != 0) {
    nb::python_error failure;  // takes the error over
    throw Error(ErrorKind::kInput,
                std::string("Artifact.from_bytes: wanted contiguous bytes, got ") +
                    text_of(nb::inst_name(data)) + ": " + text_of(nb::str(failure.value())));
  }
  const auto size = static_cast<size_t>(view->len);
  const bool copied = flag_from(copy, "Artifact.from_bytes: copy");
  const ReleasedGil released;
  return copied ? Artifact::from_memory(view->buf, size)
                : Artifact::from_memory(view->buf, size, view);
}

void save(const Artifact& artifact, nb::handle path) {
  nb::object bytes = nb::steal(PyMemoryView_FromMemory(
      const_cast<char*>(contents(artifact)), static_cast<Py_ssize_t>(artifact.size()), PyBUF_READ));
  nb::module_::import_("heddle.runtime.whole_file").attr("save_artifact")(path, bytes);
}

}  // namespace

std::string path_text(nb::handle path) {
  nb::object decoded;
  try {
    decoded = nb::module_::import_("os").attr("fsdecode")(path);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    throw Error(ErrorKind::kInput,
                std::string("path: wanted a text, bytes or an os.PathLike, got ") +
                    text_of(nb::repr(path)));
  }
  std::string text;
  if (!nb::try_cast(decoded, text)) {  // bytes that are none are surrogates now
    PyErr_Clear();
    throw Error(ErrorKind::kInput,
                std::string("path: wanted one that is UTF-8, got ") + text_of(nb::repr(path)));
  }
  return whole_path(std::move(text));
}

void bind_artifact(nb::module_& module) {
  nb::class_<Artifact>(module, "Artifact", nb::is_final(), "A verified artifact.")
      .def_static("load", &load, nb::arg("path").none(), nb::arg("name") = nb::none())
      .def_static("from_bytes", &from_bytes, nb::arg("data").none(), nb::arg("copy").none() = true)
      .def("save", &save, nb::arg("path").none())
      .def("to_bytes", [](const Artifact& self) { return nb::bytes(contents(self), self.size()); })
      .def_prop_ro("name", [](const Artifact& self) { return std::string(self.name()); })
      .def_prop_ro("path", &Artifact::path)
      .def_prop_ro("nbytes", &Artifact::size)
      .def_prop_ro("provenance", &provenance)
      .def_prop_ro("symbols", &symbols)
      .def_prop_ro("inputs", &inputs)
      .def_prop_ro("outputs", &outputs)
      .def_prop_ro("weights", &weights)
      .def_prop_ro("programs", &programs)
      .def_prop_ro("requirements", &requirements)
      .def("describe", &describe)
      .def("__repr__", [](const Artifact& self) {
        return "Artifact(" + std::string(self.name()) + ", " + std::to_string(self.size()) +
               " bytes)";
      });
}

}  // namespace heddle::bindings
