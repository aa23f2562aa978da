#include "heddle/artifact.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstdio>
#include <string>

#include "bindings.h"
#include "describe.h"

namespace heddle::bindings {
namespace {

// The file's bytes: its section table is at offset 64 (docs/artifact.md).
const char* contents(const Artifact& artifact) {
  return reinterpret_cast<const char*>(artifact.sections().data()) - sizeof(HeaderRecord);
}

std::shared_ptr<const Artifact> load(nb::handle path) {
  const std::string text = path_text(path);
  nb::gil_scoped_release release;
  return Artifact::open(text);
}

std::shared_ptr<const Artifact> from_bytes(nb::handle data) {
  Py_buffer view;
  if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  struct Release {
    Py_buffer* view;
    ~Release() { PyBuffer_Release(view); }
  } release{&view};
  return Artifact::from_memory(view.buf, static_cast<size_t>(view.len));
}

// Written beside the target and renamed: a reader never sees half a file. A link stays a link, and
// what is no regular file (a device, a pipe) is written to: a rename would replace it.
void save(const Artifact& artifact, nb::handle path) {
  nb::object os = nb::module_::import_("os");
  nb::object new_path = nb::module_::import_("pathlib").attr("Path");
  nb::object target = new_path(path_text(path));
  nb::object bytes = nb::steal(PyMemoryView_FromMemory(
      const_cast<char*>(contents(artifact)), static_cast<Py_ssize_t>(artifact.size()), PyBUF_READ));
  std::string partial;
  try {
    if (nb::cast<bool>(target.attr("exists")()) && !nb::cast<bool>(target.attr("is_file")())) {
      target.attr("write_bytes")(bytes);
      return;
    }
    target = target.attr("resolve")();
    partial = path_text(target) + "." + nb::str(os.attr("getpid")()).c_str();
    new_path(partial).attr("write_bytes")(bytes);
    os.attr("replace")(partial, target);
  } catch (nb::python_error& error) {
    if (!partial.empty()) std::remove(partial.c_str());
    // The caller knows neither the partial file nor, where a disk is full, which file it was.
    nb::setattr(error.value(), "filename", path);
    throw;
  }
}

}  // namespace

std::string path_text(nb::handle path) {
  std::string text = nb::cast<std::string>(nb::module_::import_("os").attr("fsdecode")(path));
  const size_t end = text.find('\0');
  if (end != std::string::npos) {  // the system would stop there and open another file
    throw Error(ErrorKind::kInput,
                "path: wanted one without NUL, got one after '" + text.substr(0, end) + "'");
  }
  return text;
}

void bind_artifact(nb::module_& module) {
  nb::class_<Artifact>(module, "Artifact", nb::is_final(), "A verified artifact.")
      .def_static("load", &load, nb::arg("path"))
      .def_static("from_bytes", &from_bytes, nb::arg("data"))
      .def("save", &save, nb::arg("path"))
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
