#include "dlpack.h"

#include <nanobind/stl/pair.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "heddle/cuda_device.h"

namespace heddle::bindings {
namespace {

// The structures of the DLPack specification, version 1; the floats of 8 bits came with 1.1.

constexpr int32_t kCpu = 1;
constexpr int32_t kCuda = 2;
constexpr uint64_t kReadOnly = 1;
constexpr uint64_t kCopied = 2;

struct TypeCode {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_index;
  int32_t rank;
  TypeCode type;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};

struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);

  static constexpr const char* kName = "dltensor";
  static constexpr const char* kUsed = "used_dltensor";
};

struct ManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  Tensor tensor;

  static constexpr const char* kName = "dltensor_versioned";
  static constexpr const char* kUsed = "used_dltensor_versioned";
};

struct Row {
  DType dtype;
  TypeCode type;
};

constexpr Row kTypes[] = {
    {DType::kBool, {6, 8, 1}},        {DType::kInt8, {0, 8, 1}},
    {DType::kInt16, {0, 16, 1}},      {DType::kInt32, {0, 32, 1}},
    {DType::kInt64, {0, 64, 1}},      {DType::kUInt8, {1, 8, 1}},
    {DType::kUInt16, {1, 16, 1}},     {DType::kUInt32, {1, 32, 1}},
    {DType::kUInt64, {1, 64, 1}},     {DType::kFloat16, {2, 16, 1}},
    {DType::kBFloat16, {4, 16, 1}},   {DType::kFloat32, {2, 32, 1}},
    {DType::kFloat64, {2, 64, 1}},    {DType::kFloat8E4M3FN, {10, 8, 1}},
    {DType::kFloat8E5M2, {12, 8, 1}},
};

DType dtype_of(TypeCode type) {
  for (const Row& row : kTypes) {
    if (row.type.code == type.code && row.type.bits == type.bits && type.lanes == 1) {
      return row.dtype;
    }
  }
  throw Error(ErrorKind::kInput, "DLPack: wanted a dtype of Heddle, got type code " +
                                     std::to_string(type.code) + " with " +
                                     std::to_string(type.bits) + " bits and " +
                                     std::to_string(type.lanes) + " lanes");
}

TypeCode type_of(DType dtype) { return kTypes[static_cast<uint32_t>(dtype) - 1].type; }

template <class T>
std::shared_ptr<void> take_over(PyObject* capsule, T* managed) {
  if (PyCapsule_SetName(capsule, T::kUsed) != 0) throw nb::python_error();
  return {managed, [](void* pointer) {
            const HeldGil gil;
            auto* tensor = static_cast<T*>(pointer);
            if (tensor->deleter != nullptr) tensor->deleter(tensor);
          }};
}

/// For strides: what does not fit is of a tensor without elements, or of one that is refused.
void multiply(int64_t* stride, int64_t size) {
  if (__builtin_mul_overflow(*stride, size, stride)) *stride = 0;
}

Imported describe(const Tensor& tensor) {
  if (tensor.device_type != kCpu && tensor.device_type != kCuda) {
    throw Error(ErrorKind::kInput,
                "DLPack: wanted memory of a CPU (1) or a CUDA device (2), got device type " +
                    std::to_string(tensor.device_type));
  }
  Imported result;
  result.view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  result.view.dtype = dtype_of(tensor.type);
  result.view.device = tensor.device_type == kCpu ? DeviceKind::kCpu : DeviceKind::kCuda;
  result.view.device_index = tensor.device_index;
  result.view.shape = Shape(tensor.shape, static_cast<size_t>(tensor.rank));
  result.strides = result.view.shape;
  result.contiguous = true;
  result.read_only = false;
  int64_t expected = 1;
  for (size_t axis = result.view.shape.rank(); axis-- > 0;) {
    const int64_t stride = tensor.strides == nullptr ? expected : tensor.strides[axis];
    result.strides[axis] = stride;
    const int64_t size = result.view.shape[axis];
    result.contiguous = result.contiguous && (size <= 1 || stride == expected);
    multiply(&expected, size);
  }
  for (int64_t size : result.view.shape) result.contiguous = result.contiguous || size == 0;
  return result;
}

nb::object capsule_from(nb::handle method, const nb::dict& arguments) {
  try {
    return method(**arguments);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_BufferError)) throw;
    throw Error(ErrorKind::kInput, std::string("DLPack: wanted a tensor, got the refusal: ") +
                                       text_of(nb::str(error.value())));
  }
}

nb::object call_dlpack(nb::handle object, Stream stream) {
  nb::object method = object.attr("__dlpack__");
  nb::object where = nb::getattr(object, "__dlpack_device__", nb::none());
  nb::object place = where.is_none() ? nb::none() : where();
  std::pair<int, int> device;
  if (!nb::try_cast(place, device)) {
    throw Error(ErrorKind::kInput,
                std::string("DLPack: wanted __dlpack_device__() as two integers, got ") +
                    text_of(nb::repr(place)));
  }
  nb::dict arguments;
  if (device.first == kCuda) {
    auto gpu = cuda::CudaDevice::open(device.second);
    arguments["stream"] = reinterpret_cast<uintptr_t>(gpu->queue(stream));
  }
  nb::dict versioned;
  for (auto [key, value] : arguments) versioned[key] = value;
  versioned["max_version"] = nb::make_tuple(1, 0);
  try {
    return capsule_from(method, versioned);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return capsule_from(method, arguments);  // a producer from before version 1
}

// What a capsule that was given out holds: the Python buffer, and room for shape and strides.
template <class T>
struct Export {
  T managed{};
  nb::object owner;
  Shape shape;
  Shape strides;
};

template <class T>
nb::object make_capsule(nb::handle self, const TensorView& view) {
  auto made = std::make_unique<Export<T>>();
  made->owner = nb::borrow(self);
  made->shape = view.shape;
  made->strides = view.shape;
  int64_t stride = 1;
  for (size_t axis = view.shape.rank(); axis-- > 0;) {
    made->strides[axis] = stride;
    multiply(&stride, view.shape[axis]);
  }
  T& managed = made->managed;
  managed.tensor = {view.data,           view.device == DeviceKind::kCpu ? kCpu : kCuda,
                    view.device_index,   static_cast<int32_t>(view.shape.rank()),
                    type_of(view.dtype), &made->shape[0],
                    &made->strides[0],   0};
  managed.context = made.get();
  managed.deleter = [](T* tensor) {
    const HeldGil gil;
    delete static_cast<Export<T>*>(tensor->context);
  };
  PyObject* capsule = PyCapsule_New(&managed, T::kName, [](PyObject* unused) {
    if (PyCapsule_IsValid(unused, T::kName) == 0) return;  // its consumer has it
    auto* tensor = static_cast<T*>(PyCapsule_GetPointer(unused, T::kName));
    tensor->deleter(tensor);
  });
  if (capsule == nullptr) throw nb::python_error();
  made.release();
  return nb::steal(capsule);
}

[[noreturn]] void refuse(const std::string& message) { throw nb::buffer_error(message.c_str()); }

// The consumer's stream waits for the last write; "Python Specification for DLPack": none is the
// default stream, -1 wants no order.
void order_consumer(const Buffer& buffer, nb::handle stream) {
  constexpr intptr_t kNoOrder = -1;
  if (buffer.device()->kind() != DeviceKind::kCuda) return;
  buffer.storage()->uses()->hand_out();
  intptr_t number = 0;
  if (!stream.is_none() && !nb::try_cast(stream, number)) {
    throw Error(ErrorKind::kInput,
                std::string("Buffer.__dlpack__: wanted the stream as a number, got ") +
                    text_of(nb::repr(stream)));
  }
  if (number == kNoOrder) return;
  Device& device = *buffer.device();
  buffer.storage()->uses()->order_read(device, device.stream(reinterpret_cast<void*>(number)));
}

}  // namespace

Imported import_dlpack(nb::handle object, Stream stream) {
  nb::object capsule = call_dlpack(object, stream);
  if (PyCapsule_IsValid(capsule.ptr(), ManagedVersioned::kName) != 0) {
    auto* managed = static_cast<ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), ManagedVersioned::kName));
    if (managed->major != 1) {
      throw Error(ErrorKind::kInput,
                  "DLPack: wanted version 1, got version " + std::to_string(managed->major));
    }
    Imported result = describe(managed->tensor);
    result.read_only = (managed->flags & kReadOnly) != 0;
    result.owner = take_over(capsule.ptr(), managed);
    return result;
  }
  if (PyCapsule_IsValid(capsule.ptr(), Managed::kName) == 0) {
    throw Error(ErrorKind::kInput,
                std::string("DLPack: wanted a capsule that nobody has taken over, got ") +
                    text_of(nb::repr(capsule)));
  }
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), Managed::kName));
  Imported result = describe(managed->tensor);
  result.owner = take_over(capsule.ptr(), managed);
  return result;
}

nb::object export_dlpack(nb::handle self, nb::handle stream, nb::handle max_version,
                         nb::handle device, nb::handle copy) {
  nb::object source = nb::borrow(self);
  const BufferObject* object = &buffer_of(self);
  const DeviceName name = name_of(*object->buffer.device());
  if (!device.is_none() && !nb::object(dlpack_device(name)).equal(device)) {
    refuse("Buffer.__dlpack__: the memory is on " + name.text() + "; use Buffer.to() first");
  }
  const bool copied = !copy.is_none() && flag_from(copy, "Buffer.__dlpack__: copy");
  if (copied) {
    source = self.attr("copy")();
    object = &buffer_of(source);
  }
  order_consumer(object->buffer, stream);
  const TensorView& view = object->buffer.view();
  std::pair<int, int> version{0, 0};
  if (!max_version.is_none() && !nb::try_cast(max_version, version)) {
    throw Error(ErrorKind::kInput,
                std::string("Buffer.__dlpack__: wanted max_version as two integers, got ") +
                    text_of(nb::repr(max_version)));
  }
  const bool versioned = version.first >= 1;
  if (!versioned) {
    if (!object->writable) refuse("Buffer.__dlpack__: a read-only buffer needs DLPack version 1");
    return make_capsule<Managed>(source, view);
  }
  nb::object capsule = make_capsule<ManagedVersioned>(source, view);
  auto* managed =
      static_cast<ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), ManagedVersioned::kName));
  managed->major = 1;
  managed->minor = 0;
  managed->flags = (object->writable ? 0 : kReadOnly) | (copied ? kCopied : 0);
  return capsule;
}

nb::tuple dlpack_device(DeviceName name) {
  return nb::make_tuple(name.kind == DeviceKind::kCpu ? kCpu : kCuda, name.index);
}

}  // namespace heddle::bindings
