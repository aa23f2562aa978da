#include "heddle/buffer.h"

#include <utility>

#include "heddle/error.h"

namespace heddle {
namespace {

size_t checked_bytes(DType dtype, const Shape& shape) {
  auto bytes = shape.bytes(dtype);
  if (!bytes) {
    throw Error(ErrorKind::kInput, std::string("a buffer of ") + dtype_name(dtype) + shape.text() +
                                       ": wanted sizes of 0 or more that fit 63 bits in bytes");
  }
  return static_cast<size_t>(*bytes);
}

}  // namespace

std::shared_ptr<Storage> Storage::allocate(std::shared_ptr<Device> device, size_t size) {
  void* data = device->allocate(size);
  return std::make_shared<Storage>(std::move(device), data, size, nullptr);
}

std::shared_ptr<Storage> Storage::borrow(std::shared_ptr<Device> device, void* data, size_t size,
                                         std::shared_ptr<void> owner) {
  return std::make_shared<Storage>(std::move(device), data, size, std::move(owner));
}

Storage::Storage(std::shared_ptr<Device> device, void* data, size_t size,
                 std::shared_ptr<void> owner)
    : device_(std::move(device)), data_(data), size_(size), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (!owner_) device_->release(data_, size_);
}

Buffer::Buffer(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape)
    : storage_(std::move(storage)) {
  size_t bytes = checked_bytes(dtype, shape);
  if (bytes > storage_->size()) {
    throw Error(ErrorKind::kInput, std::string("a buffer of ") + dtype_name(dtype) + shape.text() +
                                       ": wanted " + std::to_string(bytes) + " bytes, got " +
                                       std::to_string(storage_->size()));
  }
  const Device& device = *storage_->device();
  view_ = {storage_->data(), dtype, device.kind(), device.index(), shape};
}

Buffer Buffer::allocate(std::shared_ptr<Device> device, DType dtype, const Shape& shape) {
  return Buffer(Storage::allocate(std::move(device), checked_bytes(dtype, shape)), dtype, shape);
}

}  // namespace heddle
