#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bindings.h"

namespace heddle::bindings {

/// A tensor that came from Python, and what keeps its memory alive.
///
/// NumPy arrays and other objects with the buffer protocol, Python `Buffer`s, objects with
/// `__cuda_array_interface__` or `__dlpack__`, and Python numbers are taken. A tensor that is not
/// dense, row-major and aligned to its elements is copied when it is moved, and the copy is
/// counted.
class Argument {
 public:
  Argument() = default;
  ~Argument();
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;

  /// Takes `object`, which stays alive meanwhile; a number becomes a tensor of rank 0 and dtype
  /// `wanted`. What is on a GPU is kept until the work that uses it is done, and is ready in the
  /// order of `stream`. Throws an input error that says what was wanted and what was found.
  void take(PyObject* object, std::optional<DType> number, Stream stream = {});

  /// Whether programs of `device` read the tensor where it is; a GPU's is never moved.
  bool usable_on(const Device& device) const {
    return view_.device != DeviceKind::kCpu ||
           (device.kind() == DeviceKind::kCpu && dense() && is_aligned(view_));
  }

  /// Moves a host tensor to dense memory of `device`, at a multiple of its element, where it is not
  /// there yet.
  void move_to(const std::shared_ptr<Device>& device);

  /// What the view is to be once the tensor is moved to `device`; its memory is nobody's.
  TensorView stand_in(const Device& device) const;

  /// Lets the stream from which a tensor came go on behind what was done with it.
  void release_producer() {
    if (foreign_ && foreign_->producer) order_producer();
  }

  const TensorView& view() const { return view_; }

  /// What tracks memory of a GPU that is another's, else null.
  std::shared_ptr<Storage> storage() const { return foreign_ ? foreign_->storage : nullptr; }
  bool writable() const { return writable_; }

  /// Whether the view says where the elements are: one after another.
  bool dense() const { return strided_ == nullptr; }

  /// The object that exported the memory by the buffer protocol, or null: the view has a reference.
  PyObject* exporter() const { return held_.obj; }

 private:
  bool take_bits(PyObject* object);
  void take_exported(PyObject* object, Stream stream);
  void take_held(DType dtype);
  bool take_cuda(nb::handle object);
  bool read_cuda(nb::handle object, nb::handle interface, std::optional<uintptr_t>* stream);
  void take_dlpack(nb::handle object, Stream stream);
  void borrow(std::shared_ptr<void> owner);
  void order_producer();
  void take_number(nb::handle number, DType wanted);
  void use(Buffer&& buffer);

  TensorView view_;
  Py_buffer held_{};  // released at the end, where it has an object
  Buffer buffer_;
  std::shared_ptr<void> owner_;
  struct Foreign {
    std::shared_ptr<Storage> storage;
    std::optional<Stream> producer;
  };
  std::unique_ptr<Foreign> foreign_;  // memory on a GPU that is another's
  struct Strided {
    Py_buffer source;  // `held_`, or made of a DLPack tensor
    Py_ssize_t strides[kMaxRank];
  };
  std::unique_ptr<Strided> strided_;  // where elements are not one after another
  bool writable_ = true;
};

/// Throws an input error: an argument is not what was wanted.
[[noreturn]] void refuse(const std::string& message);

/// A tensor that outlives a call, on any thread, and the object that it came from.
class Kept {
 public:
  /// Takes `object`, whose memory stays where it is, dense or not.
  static std::shared_ptr<Kept> take(nb::handle object, DType wanted);

  const Argument& argument() const { return argument_; }

  /// Copies what is not dense, or not aligned; its object is not kept any more.
  void copy();

  /// Visits the objects that are kept, for Python's garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  nb::object object_;
  Argument argument_;  // goes first: it uses the object's memory
};

/// A Python `Buffer` over the memory of `object`; `dtype` renames elements of the same size.
nb::object buffer_from(nb::handle object, std::optional<DType> dtype);

/// How many tensors were copied since the process began because their layout could not be used.
int64_t copy_count();

/// The dtype that a Python object names: a text, or whatever has a `name` or a `__name__`.
DType dtype_from(nb::handle object);

}  // namespace heddle::bindings
