#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "gil.h"
#include "heddle/buffer.h"
#include "heddle/error.h"

/// The bindings convert; they decide nothing. One topic, one file, one of these functions.

namespace heddle::bindings {

namespace nb = nanobind;

void bind_errors(nb::module_& module);
void bind_device(nb::module_& module);
void bind_buffer(nb::module_& module);
void bind_artifact(nb::module_& module);
void bind_model(nb::module_& module);
void bind_cuda(nb::module_& module);
void bind_safetensors(nb::module_& module);
void bind_stream(nb::module_& module);

/// Sets the Python error that `error` is.
void raise(const Error& error);

/// Runs `body`, which returns a new reference, for a C function of Python: errors are set.
template <class Body>
PyObject* guarded(Body body) {
  try {
    return body();
  } catch (const Error& error) {
    raise(error);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

/// The Python class `Device`: a place by name.
struct DeviceName {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  bool operator==(const DeviceName& other) const {
    return kind == other.kind && index == other.index;
  }
  std::string text() const { return device_name(kind, index); }
};

DeviceName name_of(const Device& device);

/// The device that holds the memory of buffers; the CPU has no threads. Throws a device error.
std::shared_ptr<Device> memory_device(DeviceName name);

class Kept;

/// The Python class `Buffer`.
struct BufferObject {
  Buffer buffer;
  bool writable = true;
  const Kept* source = nullptr;  ///< What the storage keeps, where it is a Python object's memory.
};

/// What a Python `Buffer` holds; anything else, and one that was never made, is a TypeError.
const BufferObject& buffer_of(nb::handle object);

/// A new Python `Buffer`; `source` as its member.
nb::object wrap(Buffer&& buffer, bool writable = true, const Kept* source = nullptr);

/// A text of Python in UTF-8, what is no Unicode in it (lone surrogates) as escapes.
std::string text_of(nb::handle text);

/// The text of a Python path (`os.fspath`).
std::string path_text(nb::handle path);

/// The name of a Python `Device`; anything else is an input error of `where`.
DeviceName device_from(nb::handle device, const char* where);

/// A bool; anything else is an input error of `where`.
bool flag_from(nb::handle flag, const char* where);

/// An integer from `least` up to the largest of 32 bits; anything else is an input error of
/// `where`.
int count_from(nb::handle number, int least, const char* where);

/// A shape as a tuple of numbers.
nb::tuple shape_tuple(const Shape& shape);

}  // namespace heddle::bindings
