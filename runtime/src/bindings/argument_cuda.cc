#include <nanobind/stl/pair.h>

#include <optional>
#include <string>
#include <utility>

#include "argument.h"
#include "format.h"

namespace heddle::bindings {
namespace {

// Keeps a Python object alive for as long as the result lives, on any thread.
std::shared_ptr<void> kept(nb::handle object) {
  nb::object held = nb::borrow(object);
  return {held.release().ptr(), [](void* pointer) {
            const HeldGil gil;
            nb::handle(static_cast<PyObject*>(pointer)).dec_ref();
          }};
}

}  // namespace

// "CUDA Array Interface", version 3 (Numba documentation). Before that it had no stream: DLPack
// has.
bool Argument::take_cuda(nb::handle object) {
  nb::object interface = nb::getattr(object, "__cuda_array_interface__", nb::none());
  if (interface.is_none()) return false;
  auto malformed = [&] {
    refuse(std::string("wanted a __cuda_array_interface__ of its form, got ") +
           text_of(nb::repr(interface)));
  };
  std::optional<uintptr_t> stream;
  try {
    if (!read_cuda(object, interface, &stream)) return false;
  } catch (const nb::cast_error&) {
    PyErr_Clear();
    malformed();
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_LookupError) && !error.matches(PyExc_TypeError) &&
        !error.matches(PyExc_ValueError)) {
      throw;
    }
    malformed();
  }
  borrow(kept(object));
  if (stream) {
    Device& device = *foreign_->storage->device();
    foreign_->producer = device.stream(reinterpret_cast<void*>(*stream));
    foreign_->storage->uses()->note_ready(device.record(*foreign_->producer));
  }
  return true;
}

// False where DLPack says more.
bool Argument::read_cuda(nb::handle object, nb::handle interface,
                         std::optional<uintptr_t>* stream) {
  constexpr int kWithStream = 3;
  const bool ordered = nb::cast<int>(nb::int_(interface["version"])) >= kWithStream;
  if (!ordered && nb::hasattr(object, "__dlpack__")) return false;
  const auto data = nb::cast<std::pair<uintptr_t, bool>>(interface["data"]);
  const nb::tuple sizes = nb::cast<nb::tuple>(interface["shape"]);
  const std::string typestr = text_of(nb::cast<nb::str>(interface["typestr"]));
  const std::optional<DType> dtype = dtype_from_typestr(typestr);
  if (!dtype) refuse("wanted an array of a dtype of Heddle, got typestr '" + typestr + "'");
  auto get = interface.attr("get");
  nb::object strides = get("strides");
  int64_t numbers[kMaxRank];
  if (sizes.size() > kMaxRank)
    refuse("wanted at most 16 dims, got " + std::to_string(sizes.size()));
  int64_t expected = static_cast<int64_t>(dtype_size(*dtype));
  for (size_t axis = sizes.size(); axis-- > 0;) {
    numbers[axis] = nb::cast<int64_t>(sizes[axis]);
    if (!strides.is_none() && numbers[axis] != 1 && nb::cast<int64_t>(strides[axis]) != expected) {
      refuse("wanted a dense row-major array on the device, got strides " +
             text_of(nb::str(strides)));
    }
    // What does not fit is of an array without elements, or of one that is refused.
    if (__builtin_mul_overflow(expected, numbers[axis], &expected)) expected = 0;
  }
  view_.data = reinterpret_cast<void*>(data.first);
  view_.dtype = *dtype;
  view_.device = DeviceKind::kCuda;
  view_.device_index = 0;
  view_.shape = Shape(numbers, sizes.size());
  writable_ = !data.second;
  nb::object index = nb::getattr(nb::getattr(object, "device", nb::none()), "id", nb::none());
  if (!index.is_none()) view_.device_index = nb::cast<int>(index);
  nb::object number = get("stream");
  if (!number.is_none()) *stream = nb::cast<uintptr_t>(number);
  return true;
}

}  // namespace heddle::bindings
