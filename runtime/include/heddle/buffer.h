#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/device.h"
#include "heddle/dtype.h"
#include "heddle/live.h"
#include "heddle/shape.h"
#include "heddle/span.h"
#include "heddle/uses.h"

namespace heddle {

class Storage;

/// A dense row-major tensor in somebody's memory, at a multiple of its element; what
/// `Model::execute` takes.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  DeviceKind device = DeviceKind::kCpu;
  int device_index = 0;
  Shape shape;
  Storage* storage = nullptr;  ///< What tracks the memory's uses, or null: its owner orders them.
};

/// Whether a view starts at a multiple of its element, which kernels count on.
inline bool is_aligned(const TensorView& view) {
  return (reinterpret_cast<uintptr_t>(view.data) & (dtype_size(view.dtype) - 1)) == 0;
}

/// A view of the host's memory, which the caller keeps: `host_view(values.data(), {3, 64})`.
template <class T>
TensorView host_view(T* data, const Shape& shape) {
  TensorView view;
  view.data = const_cast<std::remove_const_t<T>*>(data);
  view.dtype = dtype_of<std::remove_const_t<T>>();
  view.shape = shape;
  return view;
}

/// One block of device memory, released with its last user: on a GPU in the order of the streams
/// that work on it, as is what keeps borrowed memory alive.
class Storage : Counted<Storage> {
 public:
  using Counted<Storage>::live;

  /// New memory, 64-byte aligned, contents unknown. Throws a device error.
  static std::shared_ptr<Storage> allocate(std::shared_ptr<Device> device, size_t size,
                                           MemoryKind kind);

  /// The same, to be used in the order of `stream`; its first use there is noted by the caller.
  static std::shared_ptr<Storage> allocate(std::shared_ptr<Device> device, size_t size,
                                           MemoryKind kind, Stream stream);

  /// Memory that `owner` keeps alive (a NumPy array, a mapped file, a DLPack capsule).
  static std::shared_ptr<Storage> borrow(std::shared_ptr<Device> device, void* data, size_t size,
                                         std::shared_ptr<void> owner);

  /// Use `allocate` or `borrow`.
  Storage(std::shared_ptr<Device> device, void* data, size_t size, std::shared_ptr<void> owner,
          MemoryKind kind, Stream stream);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t size() const { return size_; }
  const std::shared_ptr<Device>& device() const { return device_; }

  /// Whether somebody else's object keeps the memory.
  bool borrowed() const { return owner_ != nullptr; }

  /// Null on a CPU, where nothing is in use between calls.
  Uses* uses() const { return uses_.get(); }

 private:
  bool counted() const;

  std::shared_ptr<Device> device_;
  void* data_;
  // Small: each output of each call makes one of these.
  uint64_t size_ : 56;
  uint64_t kind_ : 8;
  std::shared_ptr<void> owner_;  // null: the memory is the device's
  std::unique_ptr<Uses> uses_;
};

/// A tensor that keeps its memory alive. Copies share the memory. One that was made empty or moved
/// from has none: whatever needs it throws an input error.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = default;
  Buffer& operator=(const Buffer&) = default;
  Buffer(Buffer&& other) noexcept
      : view_(other.release_view()), storage_(std::move(other.storage_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    view_ = other.release_view();
    storage_ = std::move(other.storage_);
    return *this;
  }

  /// The whole of `storage` as a tensor. Throws an input error where it is too small.
  Buffer(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape);

  /// A new tensor, contents unknown. Throws a device error, or an input error for a bad shape.
  static Buffer allocate(std::shared_ptr<Device> device, DType dtype, const Shape& shape);

  /// The same for an output of a call on `stream`.
  static Buffer allocate(std::shared_ptr<Device> device, DType dtype, const Shape& shape,
                         Stream stream);

  /// A copy in new memory of `target`. Between devices, and on a GPU, it runs in stream order; to
  /// the host it waits, and throws as `synchronize`.
  Buffer copy_to(const std::shared_ptr<Device>& target) const;

  /// Waits for the last write. Throws as `Event::synchronize`.
  void synchronize() const;

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  void* data() const { return view_.data; }
  DType dtype() const { return view_.dtype; }
  const Shape& shape() const { return view_.shape; }
  size_t bytes() const { return static_cast<size_t>(*view_.shape.bytes(view_.dtype)); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  const std::shared_ptr<Device>& device() const { return held().device(); }

 private:
  const Storage& held() const;

  TensorView release_view() {
    TensorView released = view_;
    view_.data = nullptr;
    view_.storage = nullptr;
    return released;
  }

  TensorView view_;
  std::shared_ptr<Storage> storage_;
};

/// The views of `buffers`, as `Model::execute` takes them; the buffers keep the memory.
inline std::vector<TensorView> views(Span<Buffer> buffers) {
  return {buffers.begin(), buffers.end()};
}

}  // namespace heddle
