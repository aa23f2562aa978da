#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <new>

#include "argument.h"
#include "bindings.h"
#include "dlpack.h"
#include "format.h"
#include "heddle/cuda_device.h"

namespace heddle::bindings {
namespace {

Shape shape_from(nb::handle sizes) {
  int64_t numbers[kMaxRank + 1];
  size_t rank = 0;
  if (!nb::hasattr(sizes, "__iter__")) {
    throw Error(ErrorKind::kInput,
                std::string("Buffer: wanted a shape, as (3, 4), got ") + text_of(nb::repr(sizes)));
  }
  for (nb::handle size : sizes) {
    if (rank == kMaxRank)
      throw Error(ErrorKind::kInput, "Buffer: wanted at most 16 dims, got more");
    if (!nb::try_cast(size, numbers[rank++]))
      throw Error(ErrorKind::kInput,
                  std::string("Buffer: wanted sizes as integers of 64 bits, got ") +
                      text_of(nb::repr(size)));
  }
  return {numbers, rank};
}

BufferObject new_buffer(nb::handle dtype, nb::handle shape, nb::handle device) {
  const DeviceName place = device_from(device, "Buffer");
  return {Buffer::allocate(memory_device(place), dtype_from(dtype), shape_from(shape)), true};
}

nb::object from_numpy(nb::handle array, nb::handle dtype) {
  if (dtype.is_none()) return buffer_from(array, std::nullopt);
  return buffer_from(array, dtype_from(dtype));
}

BufferObject copy_to(const BufferObject& self, DeviceName target) {
  const std::shared_ptr<Device> device = memory_device(target);
  const ReleasedGil released;
  return {self.buffer.copy_to(device), true};
}

nb::object to_device(nb::handle self, nb::handle device) {
  const DeviceName target = device_from(device, "Buffer.to");
  const BufferObject& object = buffer_of(self);
  if (name_of(*object.buffer.device()) == target) return nb::borrow(self);
  return nb::cast(copy_to(object, target));
}

[[noreturn]] void lacks(const std::string& message) { throw nb::attribute_error(message.c_str()); }

// What both array interfaces say alike.
nb::dict interface(const BufferObject& self) {
  const std::string typestr = typestr_of(self.buffer.dtype());
  if (typestr.empty()) {
    lacks(std::string("Buffer: ") + dtype_name(self.buffer.dtype()) +
          " has no typestr; use DLPack or to_numpy()");
  }
  nb::dict interface;
  interface["version"] = 3;
  interface["typestr"] = typestr;
  interface["shape"] = shape_tuple(self.buffer.shape());
  interface["strides"] = nb::none();
  interface["data"] =
      nb::make_tuple(reinterpret_cast<uintptr_t>(self.buffer.data()), !self.writable);
  return interface;
}

nb::dict array_interface(const BufferObject& self) {
  if (self.buffer.device()->kind() != DeviceKind::kCpu) {
    lacks("Buffer: the memory is on " + name_of(*self.buffer.device()).text() +
          ", which NumPy cannot see; to_numpy() copies");
  }
  nb::dict result = interface(self);
  // An empty tensor has no memory, but older NumPy (2.2) wants an address.
  alignas(64) static char nothing[64];
  if (self.buffer.data() == nullptr) {
    result["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(nothing), !self.writable);
  }
  return result;
}

nb::dict cuda_array_interface(const BufferObject& self) {
  if (self.buffer.device()->kind() != DeviceKind::kCuda) {
    lacks("Buffer: the memory is on the CPU, not on a CUDA device");
  }
  nb::dict result = interface(self);
  const Buffer& buffer = self.buffer;
  buffer.storage()->uses()->hand_out();
  std::shared_ptr<Event> written = buffer.storage()->uses()->written();
  result["stream"] = nb::none();  // where the last write is done
  if (written != nullptr && !written->reached()) {
    result["stream"] = reinterpret_cast<uintptr_t>(
        static_cast<cuda::CudaDevice&>(*buffer.device()).stream_behind(*written));
  }
  return result;
}

nb::object ml_dtype(DType dtype, nb::handle fallback) {
  try {
    return nb::module_::import_("ml_dtypes").attr(dtype_name(dtype));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    return nb::borrow(fallback);
  }
}

nb::object to_numpy(nb::handle self) {
  const BufferObject& object = buffer_of(self);
  if (object.buffer.device()->kind() != DeviceKind::kCpu) {
    return to_numpy(nb::cast(copy_to(object, {})));
  }
  nb::object asarray = nb::module_::import_("numpy").attr("asarray");
  const DType dtype = object.buffer.dtype();
  if (!typestr_of(dtype).empty()) return asarray(self);
  const DType unsigned_type = dtype_size(dtype) == 1 ? DType::kUInt8 : DType::kUInt16;
  const BufferObject bits{Buffer(object.buffer.storage(), unsigned_type, object.buffer.shape()),
                          object.writable};
  nb::object array = asarray(nb::cast(bits));
  return array.attr("view")(ml_dtype(dtype, array.attr("dtype")));
}

nb::object item(nb::handle self) {
  nb::object array = to_numpy(self);
  if (nb::cast<int64_t>(array.attr("size")) != 1) {
    throw Error(ErrorKind::kInput, "Buffer.item: wanted one element, got the shape " +
                                       buffer_of(self).buffer.shape().text());
  }
  return array.attr("item")();
}

nb::object as_array(nb::handle self, nb::handle dtype, nb::handle copy) {
  const BufferObject& object = buffer_of(self);
  if (object.buffer.device()->kind() != DeviceKind::kCpu && copy.is(Py_False)) {
    throw nb::value_error("Buffer.__array__: memory of a GPU cannot be seen without a copy");
  }
  nb::object array = to_numpy(self);
  return nb::module_::import_("numpy").attr("array")(array, nb::arg("dtype") = dtype,
                                                     nb::arg("copy") = copy);
}

// An array may hold the Buffer that keeps it. Of a storage that others hold too, none of its
// holders can say that the array is reached by it alone.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* object = nb::inst_ptr<BufferObject>(self);
  const bool alone = object->source != nullptr && object->buffer.storage().use_count() == 1;
  return alone ? object->source->traverse(visit, arg) : 0;
}

int clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  auto* object = nb::inst_ptr<BufferObject>(self);
  object->source = nullptr;
  Buffer released = std::move(object->buffer);  // Whoever is called meanwhile finds it empty.
  return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(&clear)},
                       {0, nullptr}};

std::string text(const BufferObject& self) {
  return std::string("Buffer(") + dtype_name(self.buffer.dtype()) + self.buffer.shape().text() +
         ", " + name_of(*self.buffer.device()).text() + ")";
}

}  // namespace

nb::tuple shape_tuple(const Shape& shape) {
  nb::list sizes;
  for (int64_t size : shape) sizes.append(size);
  return nb::tuple(sizes);
}

const BufferObject& buffer_of(nb::handle object) {
  if (!nb::isinstance<BufferObject>(object) || !nb::inst_ready(object)) {
    const bool unmade = nb::isinstance<BufferObject>(object);
    const std::string found = unmade ? "one that was never made" : text_of(nb::inst_name(object));
    throw nb::type_error(("wanted a Buffer, got " + found).c_str());
  }
  return *nb::inst_ptr<BufferObject>(object);
}

nb::object wrap(Buffer&& buffer, bool writable, const Kept* source) {
  static PyObject* const type = nb::type<BufferObject>().ptr();
  nb::object made = nb::inst_alloc(type);
  new (nb::inst_ptr<void>(made)) BufferObject{std::move(buffer), writable, source};
  nb::inst_mark_ready(made);
  if (source == nullptr) PyObject_GC_UnTrack(made.ptr());  // It is in no cycle.
  return made;
}

void bind_buffer(nb::module_& module) {
  nb::class_<BufferObject>(module, "Buffer", nb::type_slots(slots), nb::is_final(),
                           "A dense row-major tensor.")
      .def(nb::new_(&new_buffer), nb::arg("dtype").none(), nb::arg("shape").none(),
           nb::arg("device").none() = DeviceName{},
           "New memory, 64-byte aligned, contents unknown.")
      .def_static("from_numpy", &from_numpy, nb::arg("array").none(), nb::arg("dtype") = nb::none())
      .def_static(
          "from_dlpack",
          [](nb::handle tensor) {
            if (!nb::hasattr(tensor, "__dlpack__")) {
              throw Error(
                  ErrorKind::kInput,
                  std::string("Buffer.from_dlpack: wanted an object with __dlpack__, got ") +
                      text_of(nb::repr(tensor)));
            }
            return buffer_from(tensor, std::nullopt);
          },
          nb::arg("tensor").none())
      .def_prop_ro("dtype",
                   [](const BufferObject& self) { return dtype_name(self.buffer.dtype()); })
      .def_prop_ro("shape",
                   [](const BufferObject& self) { return shape_tuple(self.buffer.shape()); })
      .def_prop_ro("device",
                   [](const BufferObject& self) { return name_of(*self.buffer.device()); })
      .def_prop_ro("nbytes", [](const BufferObject& self) { return self.buffer.bytes(); })
      .def_ro("writable", &BufferObject::writable)
      .def("to", &to_device, nb::arg("device").none())
      .def("copy",
           [](const BufferObject& self) { return copy_to(self, name_of(*self.buffer.device())); })
      .def(
          "synchronize", [](const BufferObject& self) { self.buffer.synchronize(); },
          nb::call_guard<ReleasedGil>())
      .def_prop_ro("ready",
                   [](const BufferObject& self) {
                     const Storage* storage = self.buffer.storage().get();
                     const Uses* uses = storage == nullptr ? nullptr : storage->uses();
                     auto written = uses == nullptr ? nullptr : uses->written();
                     return written == nullptr || written->reached();
                   })
      .def("to_numpy", &to_numpy)
      .def("item", &item)
      .def("__array__", &as_array, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def_prop_ro("__array_interface__", &array_interface)
      .def_prop_ro("__cuda_array_interface__", &cuda_array_interface)
      .def("__dlpack__", &export_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none())
      .def("__dlpack_device__",
           [](const BufferObject& self) { return dlpack_device(name_of(*self.buffer.device())); })
      .def("__repr__", &text);
  module.def("copy_count", &copy_count,
             "How many arrays were copied so far because their layout could not be used.");
}

}  // namespace heddle::bindings
