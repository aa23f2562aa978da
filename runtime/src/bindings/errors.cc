#include "bindings.h"
#include "heddle/error.h"

namespace heddle::bindings {
namespace {

const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kArtifact:
      return "ArtifactError";
    case ErrorKind::kDevice:
      return "DeviceError";
    case ErrorKind::kInput:
      return "InputError";
  }
  return "HeddleError";
}

}  // namespace

void raise(const Error& error) {
  try {
    nb::object type = nb::module_::import_("heddle.runtime.errors").attr(class_name(error.kind()));
    nb::object raised = error.kind() == ErrorKind::kArtifact
                            ? type(error.what(), reason_name(error.reason()))
                            : type(error.what());
    PyErr_SetObject(type.ptr(), raised.ptr());
  } catch (nb::python_error& failure) {
    failure.restore();
  }
}

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

}  // namespace heddle::bindings
