#pragma once

#include <memory>

#include "heddle/device.h"
#include "heddle/dtype.h"
#include "heddle/live.h"
#include "heddle/shape.h"

namespace heddle {

/// A dense row-major tensor in somebody's memory; what `Model::execute` takes.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  DeviceKind device = DeviceKind::kCpu;
  int device_index = 0;
  Shape shape;
};

/// One block of device memory, released with its last user.
class Storage : Counted<Storage> {
 public:
  using Counted<Storage>::live;

  /// New memory, 64-byte aligned, contents unknown. Throws a device error.
  static std::shared_ptr<Storage> allocate(std::shared_ptr<Device> device, size_t size);

  /// Memory that `owner` keeps alive (a NumPy array, a mapped file, a DLPack capsule).
  static std::shared_ptr<Storage> borrow(std::shared_ptr<Device> device, void* data, size_t size,
                                         std::shared_ptr<void> owner);

  Storage(std::shared_ptr<Device> device, void* data, size_t size, std::shared_ptr<void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t size() const { return size_; }
  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  std::shared_ptr<Device> device_;
  void* data_;
  size_t size_;
  std::shared_ptr<void> owner_;  // null: the memory is the device's
};

/// A tensor that keeps its memory alive. Copies share the memory.
class Buffer {
 public:
  Buffer() = default;

  /// The whole of `storage` as a tensor. Throws an input error where it is too small.
  Buffer(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape);

  /// A new tensor, contents unknown. Throws a device error, or an input error for a bad shape.
  static Buffer allocate(std::shared_ptr<Device> device, DType dtype, const Shape& shape);

  const TensorView& view() const { return view_; }
  void* data() const { return view_.data; }
  DType dtype() const { return view_.dtype; }
  const Shape& shape() const { return view_.shape; }
  size_t bytes() const { return static_cast<size_t>(*view_.shape.bytes(view_.dtype)); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  const std::shared_ptr<Device>& device() const { return storage_->device(); }

 private:
  TensorView view_;
  std::shared_ptr<Storage> storage_;
};

}  // namespace heddle
