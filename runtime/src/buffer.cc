#include "heddle/buffer.h"

#include <utility>

#include "heddle/error.h"

namespace heddle {
namespace {

// Smaller memory of a CPU is not counted: that would take a small call a tenth longer.
constexpr size_t kCountedFrom = 4096;

size_t checked_bytes(DType dtype, const Shape& shape) {
  auto bytes = shape.bytes(dtype);
  if (!bytes) {
    throw Error(ErrorKind::kInput, std::string("a buffer of ") + dtype_name(dtype) + shape.text() +
                                       ": wanted sizes of 0 or more that fit 63 bits in bytes");
  }
  return static_cast<size_t>(*bytes);
}

}  // namespace

std::shared_ptr<Storage> Storage::allocate(std::shared_ptr<Device> device, size_t size,
                                           MemoryKind kind) {
  void* data = not_null(device, "a buffer's device")->allocate(size);
  return std::make_shared<Storage>(std::move(device), data, size, nullptr, kind, Stream());
}

std::shared_ptr<Storage> Storage::allocate(std::shared_ptr<Device> device, size_t size,
                                           MemoryKind kind, Stream stream) {
  void* data = not_null(device, "a buffer's device")->allocate(size, stream);
  return std::make_shared<Storage>(std::move(device), data, size, nullptr, kind, stream);
}

std::shared_ptr<Storage> Storage::borrow(std::shared_ptr<Device> device, void* data, size_t size,
                                         std::shared_ptr<void> owner) {
  return std::make_shared<Storage>(std::move(device), data, size, std::move(owner),
                                   MemoryKind::kBuffers, Stream());
}

Storage::Storage(std::shared_ptr<Device> device, void* data, size_t size,
                 std::shared_ptr<void> owner, MemoryKind kind, Stream stream)
    : device_(not_null(std::move(device), "a buffer's device")),
      data_(data),
      size_(size),
      kind_(static_cast<uint64_t>(kind)),
      owner_(std::move(owner)) {
  if (device_->kind() != DeviceKind::kCpu) uses_ = std::make_unique<Uses>(stream);
  if (counted()) device_->memory().add(kind, size);
}

bool Storage::counted() const {
  return owner_ == nullptr && (uses_ != nullptr || size_ >= kCountedFrom);
}

Storage::~Storage() {
  if (counted()) device_->memory().remove(static_cast<MemoryKind>(kind_), size_);
  if (uses_ == nullptr) {
    if (owner_ == nullptr) device_->release(data_, {}, {}, false);
    return;
  }
  std::vector<std::shared_ptr<Event>> after = uses_->all();
  if (owner_ != nullptr) {
    for (const std::shared_ptr<Event>& event : after) event->hold(owner_);
    return;
  }
  device_->release(data_, uses_->stream(), std::move(after), uses_->handed_out());
}

Buffer::Buffer(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape)
    : storage_(not_null(std::move(storage), "a buffer's storage")) {
  size_t bytes = checked_bytes(dtype, shape);
  if (bytes > storage_->size()) {
    throw Error(ErrorKind::kInput, std::string("a buffer of ") + dtype_name(dtype) + shape.text() +
                                       ": wanted " + std::to_string(bytes) + " bytes, got " +
                                       std::to_string(storage_->size()));
  }
  const Device& device = *storage_->device();
  view_ = {storage_->data(), dtype, device.kind(), device.index(), shape, storage_.get()};
}

Buffer Buffer::allocate(std::shared_ptr<Device> device, DType dtype, const Shape& shape) {
  const size_t bytes = checked_bytes(dtype, shape);
  return Buffer(Storage::allocate(std::move(device), bytes, MemoryKind::kBuffers), dtype, shape);
}

Buffer Buffer::allocate(std::shared_ptr<Device> device, DType dtype, const Shape& shape,
                        Stream stream) {
  const size_t bytes = checked_bytes(dtype, shape);
  return Buffer(Storage::allocate(std::move(device), bytes, MemoryKind::kOutputs, stream), dtype,
                shape);
}

Buffer Buffer::copy_to(const std::shared_ptr<Device>& target) const {
  Device& source = *device();
  not_null(target, "copy_to: device");
  if (source.kind() == target->kind()) {
    Buffer made = allocate(target, dtype(), shape(), Stream());
    target->copy(*storage_, *made.storage_, bytes());
    return made;
  }
  Buffer made = allocate(target, dtype(), shape());
  if (target->kind() == DeviceKind::kCpu) {
    synchronize();
    source.copy_to_host(made.data(), data(), bytes());
  } else {
    target->copy_from_host(made.data(), data(), bytes());
  }
  return made;
}

void Buffer::synchronize() const {
  const Uses* uses = held().uses();
  if (uses == nullptr) return;
  if (std::shared_ptr<Event> event = uses->written()) event->synchronize();
}

const Storage& Buffer::held() const {
  if (storage_ != nullptr) return *storage_;
  throw Error(ErrorKind::kInput,
              "a buffer: wanted one with memory, got one without (was it moved from?)");
}

}  // namespace heddle
