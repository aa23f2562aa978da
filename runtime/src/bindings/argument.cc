#include "argument.h"

#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "dlpack.h"
#include "format.h"
#include "heddle/cuda_device.h"

namespace heddle::bindings {
namespace {

std::atomic<int64_t> copies{0};

bool is_buffer(PyObject* object) {
  static PyTypeObject* const type = reinterpret_cast<PyTypeObject*>(nb::type<BufferObject>().ptr());
  return Py_TYPE(object) == type;
}

std::string class_name(nb::handle type) {
  return text_of(nb::cast<nb::str>(type.attr("__name__")));
}

std::string class_of(nb::handle object) { return class_name(object.type()); }

bool is_dense(const Py_buffer& view) {
  if (view.strides == nullptr || view.len == 0) return true;
  Py_ssize_t expected = view.itemsize;
  for (int axis = view.ndim; axis-- > 0;) {
    if (view.shape[axis] != 1 && view.strides[axis] != expected) return false;
    expected *= view.shape[axis];
  }
  return true;
}

// The dtype of an array of ml_dtypes, by the name of its scalars' class. NumPy has no format for
// such an array, and exports its memory where none is asked for.
std::optional<DType> dtype_without_format(nb::handle array) {
  const nb::object dtype = nb::getattr(array, "dtype", nb::none());
  const nb::object type = nb::getattr(dtype, "type", nb::none());
  if (PyType_Check(type.ptr()) == 0) return std::nullopt;
  const std::optional<DType> known = dtype_from_name(class_name(type));
  return known && typestr_of(*known).empty() ? known : std::nullopt;
}

Shape shape_of(const Py_buffer& view) {
  if (view.shape == nullptr) {  // a plain run of bytes
    return view.ndim == 0 ? Shape() : Shape({static_cast<int64_t>(view.len / view.itemsize)});
  }
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "Heddle is for 64-bit machines");
  return Shape(reinterpret_cast<const int64_t*>(view.shape), static_cast<size_t>(view.ndim));
}

}  // namespace

void refuse(const std::string& message) { throw Error(ErrorKind::kInput, message); }

Argument::~Argument() {
  if (held_.obj != nullptr) PyBuffer_Release(&held_);
}

void Argument::take(PyObject* object, std::optional<DType> number, Stream stream) {
  if (is_buffer(object)) {
    if (!nb::inst_ready(object)) refuse("wanted an array, got a Buffer that was never made");
    const auto* source = nb::inst_ptr<BufferObject>(object);
    view_ = source->buffer.view();
    writable_ = source->writable;
  } else if (PyObject_CheckBuffer(object) != 0) {
    refuse_masked(object);
    const bool may_be_bits = number && typestr_of(*number).empty();
    if (!may_be_bits || !take_bits(object)) take_exported(object, stream);
  } else if (number && (PyFloat_Check(object) || PyLong_Check(object))) {
    take_number(object, *number);
  } else if (!take_cuda(object)) {
    if (!nb::hasattr(object, "__dlpack__")) {
      refuse(std::string("wanted an array (NumPy, Buffer, DLPack or CUDA array interface)") +
             (number ? " or a number" : "") + ", got " + class_of(object));
    }
    take_dlpack(object, stream);
  }
}

// Takes an array of ml_dtypes; false where it is none, or does not export its memory.
bool Argument::take_bits(PyObject* object) {
  const std::optional<DType> dtype = dtype_without_format(object);
  if (!dtype) return false;
  if (PyObject_GetBuffer(object, &held_, PyBUF_STRIDES) != 0) {
    PyErr_Clear();  // a GPU's, perhaps
    return false;
  }
  if (held_.itemsize != static_cast<Py_ssize_t>(dtype_size(*dtype))) {
    refuse(std::string("wanted elements of the size of ") + dtype_name(*dtype) + ", got " +
           std::to_string(held_.itemsize) + " bytes");
  }
  take_held(*dtype);
  return true;
}

// Asks for the memory of `object`.
void Argument::take_exported(PyObject* object, Stream stream) {
  if (PyObject_GetBuffer(object, &held_, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
    const std::optional<DType> dtype = dtype_from_format(held_.format, held_.itemsize);
    if (!dtype) {
      refuse("wanted an array of a dtype of Heddle in native byte order, got elements of format '" +
             std::string(held_.format) + "'");
    }
    return take_held(*dtype);
  }
  nb::python_error failure;  // takes the error over
  nb::handle array(object);
  // Arrays of CuPy have a buffer protocol that refuses, as their memory is a GPU's.
  if (nb::hasattr(array, "__cuda_array_interface__")) {
    if (!take_cuda(array)) take_dlpack(array, stream);
    return;
  }
  nb::object dtype = nb::getattr(array, "dtype", nb::none());
  if (dtype.is_none()) {
    refuse("wanted an array, got " + class_of(array) + ": " + text_of(nb::str(failure.value())));
  }
  if (!take_bits(object)) {
    refuse("wanted an array of a dtype of Heddle, got " + class_of(array) + " of dtype " +
           text_of(nb::str(dtype)));
  }
}

void Argument::take_held(DType dtype) {
  view_.dtype = dtype;
  view_.shape = shape_of(held_);
  view_.data = held_.buf;
  view_.device = DeviceKind::kCpu;
  view_.device_index = 0;
  writable_ = held_.readonly == 0;
  if (!is_dense(held_)) strided_.reset(new Strided{held_, {}});
}

void Argument::use(Buffer&& buffer) {
  if (held_.obj != nullptr) PyBuffer_Release(&held_);
  owner_ = nullptr;
  buffer_ = std::move(buffer);
  view_ = buffer_.view();
  writable_ = true;
  strided_ = nullptr;
}

// Follows the memory's uses, once the driver has said whose it is.
void Argument::borrow(std::shared_ptr<void> owner) {
  if (view_.data != nullptr) {
    const auto claimed = cuda::CudaDevice::open(view_.device_index);
    const std::optional<int> found = claimed->owner(view_.data);
    if (!found) {
      refuse("wanted memory of " + claimed->name() + ", got an address that is no GPU's");
    }
    view_.device_index = *found;
  }
  foreign_ = std::make_unique<Foreign>();
  foreign_->storage = Storage::borrow(
      memory_device({view_.device, view_.device_index}), view_.data,
      static_cast<size_t>(view_.shape.bytes(view_.dtype).value_or(0)), std::move(owner));
  view_.storage = foreign_->storage.get();
}

void Argument::order_producer() {
  for (const std::shared_ptr<Event>& event : foreign_->storage->uses()->all()) {
    event->order(*foreign_->storage->device(), *foreign_->producer);
  }
}

void Argument::take_dlpack(nb::handle object, Stream stream) {
  Imported tensor = import_dlpack(object, stream);
  view_ = tensor.view;
  writable_ = !tensor.read_only;
  owner_ = tensor.owner;
  if (view_.device == DeviceKind::kCuda) {
    if (!tensor.contiguous) {
      refuse("wanted a dense row-major tensor on the device, got strides " + tensor.strides.text());
    }
    borrow(owner_);
    return;
  }
  if (tensor.contiguous) return;
  const auto item = static_cast<Py_ssize_t>(dtype_size(view_.dtype));
  strided_ = std::make_unique<Strided>();
  for (size_t axis = 0; axis < view_.shape.rank(); ++axis) {
    strided_->strides[axis] = tensor.strides[axis] * item;
  }
  Py_buffer& source = strided_->source;
  source.buf = view_.data;
  source.len = static_cast<Py_ssize_t>(view_.shape.bytes(view_.dtype).value_or(0));
  source.itemsize = item;
  source.ndim = static_cast<int>(view_.shape.rank());
  source.shape = reinterpret_cast<Py_ssize_t*>(&view_.shape[0]);
  source.strides = strided_->strides;
}

void Argument::take_number(nb::handle number, DType wanted) {
  const bool floating = wanted >= DType::kFloat16;
  if ((PyFloat_Check(number.ptr()) && !floating) ||
      (PyBool_Check(number.ptr()) == 0 && wanted == DType::kBool)) {
    refuse(std::string("wanted a number for ") + dtype_name(wanted) + ", got " + class_of(number) +
           " " + text_of(nb::str(number)));
  }
  if (wanted == DType::kFloat8E4M3FN || wanted == DType::kFloat8E5M2) {
    refuse(std::string("wanted an array for ") + dtype_name(wanted) + ", got " + class_of(number));
  }
  try {
    if (wanted == DType::kBFloat16) {
      nb::object narrowed = nb::module_::import_("heddle.runtime.narrow_floats").attr("narrowed");
      nb::object bits = narrowed(nb::float_(number), dtype_name(wanted));
      take(bits.ptr(), wanted);
      view_.dtype = wanted;
      return;
    }
    nb::object array = nb::module_::import_("numpy").attr("asarray")(number, dtype_name(wanted));
    take(array.ptr(), wanted);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_OverflowError)) throw;
    refuse(std::string("wanted a number for ") + dtype_name(wanted) + ", got " +
           text_of(nb::str(number)));
  }
}

void Argument::move_to(const std::shared_ptr<Device>& device) {
  if (view_.device != DeviceKind::kCpu) return;
  if (!dense() || !is_aligned(view_)) {
    Buffer copy = Buffer::allocate(memory_device({}), view_.dtype, view_.shape);
    if (dense()) {
      std::memcpy(copy.data(), view_.data, copy.bytes());
    } else if (PyBuffer_ToContiguous(copy.data(), &strided_->source, strided_->source.len, 'C')) {
      throw nb::python_error();
    }
    use(std::move(copy));
    copies.fetch_add(1, std::memory_order_relaxed);
  }
  if (device->kind() == DeviceKind::kCpu) return;
  Buffer moved = Buffer::allocate(device, view_.dtype, view_.shape);
  {
    const ReleasedGil released;
    device->copy_from_host(moved.data(), view_.data, moved.bytes());
  }
  use(std::move(moved));
}

TensorView Argument::stand_in(const Device& device) const {
  alignas(64) static char nobodys[64];
  TensorView view = view_;
  view.data = nobodys;
  view.device = device.kind();
  view.device_index = device.index();
  return view;
}

std::shared_ptr<Kept> Kept::take(nb::handle object, DType wanted) {
  std::shared_ptr<Kept> kept(new Kept, [](Kept* pointer) {
    const HeldGil gil;
    delete pointer;
  });
  kept->object_ = nb::borrow(object);
  kept->argument_.take(object.ptr(), wanted);
  return kept;
}

void Kept::copy() {
  argument_.move_to(memory_device({}));
  object_.reset();
}

int Kept::traverse(visitproc visit, void* arg) const {
  Py_VISIT(object_.ptr());
  Py_VISIT(argument_.exporter());
  return 0;
}

nb::object buffer_from(nb::handle object, std::optional<DType> dtype) {
  std::shared_ptr<Kept> kept = Kept::take(object, DType::kFloat32);
  const Argument& argument = kept->argument();
  const TensorView& view = argument.view();
  if (dtype && dtype_size(*dtype) != dtype_size(view.dtype)) {
    refuse(std::string("Buffer: wanted elements of the size of ") + dtype_name(*dtype) + ", got " +
           dtype_name(view.dtype));
  }
  const DType named = dtype.value_or(view.dtype);
  if (is_buffer(object.ptr())) {  // whose memory goes on being what work on it is noted in
    const auto* shared = nb::inst_ptr<BufferObject>(object);
    return wrap(Buffer(shared->buffer.storage(), named, view.shape), argument.writable(),
                shared->source);
  }
  std::shared_ptr<Storage> storage = argument.storage();
  if (storage != nullptr) {  // a GPU's; by DLPack: behind the device's own stream
    if (storage->uses()->written() == nullptr) {
      storage->uses()->note_ready(storage->device()->record({}));
    }
    return wrap(Buffer(std::move(storage), named, view.shape), argument.writable());
  }
  if (!argument.dense() || !is_aligned(view)) kept->copy();
  const auto bytes = static_cast<size_t>(view.shape.bytes(view.dtype).value_or(0));
  const Kept* const source = kept.get();
  storage = Storage::borrow(memory_device({}), view.data, bytes, std::move(kept));
  return wrap(Buffer(std::move(storage), named, view.shape), argument.writable(), source);
}

int64_t copy_count() { return copies.load(std::memory_order_relaxed); }

DType dtype_from(nb::handle object) {
  nb::object name = nb::borrow(object);
  if (!nb::isinstance<nb::str>(name)) name = nb::getattr(object, "name", nb::none());
  if (name.is_none()) name = nb::getattr(object, "__name__", nb::none());
  if (nb::isinstance<nb::str>(name)) {
    if (auto dtype = dtype_from_name(text_of(nb::cast<nb::str>(name)))) return *dtype;
  }
  refuse("wanted a dtype such as 'float32', got " + text_of(nb::repr(object)));
}

}  // namespace heddle::bindings
