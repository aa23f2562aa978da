#include "heddle/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "heddle/checksum.h"
#include "heddle/error.h"

namespace heddle {
namespace {

// Stays in the second-level cache between the copy from the page cache and the checksum.
constexpr size_t kChunk = 256 * 1024;

constexpr size_t kAlignment = 64;

[[noreturn]] void fail(const std::string& path) {
  throw Error(ArtifactReason::kNotFound, path + ": cannot be read: " + std::strerror(errno));
}

void expect_memory(const void* data, size_t size) {
  if (data != nullptr || size == 0) return;
  throw Error(ErrorKind::kInput,
              "artifact: wanted " + std::to_string(size) + " bytes, got a null pointer");
}

}  // namespace

std::string whole_path(std::string path) {
  const size_t end = path.find('\0');
  if (end == std::string::npos) return path;
  throw Error(ErrorKind::kInput,
              "path: wanted one without NUL, got one after '" + path.substr(0, end) + "'");
}

std::unique_ptr<MappedFile> MappedFile::open(const std::string& path) {
  // A pipe would keep us waiting for a writer; for files the flag means nothing.
  int descriptor = ::open(whole_path(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(path);
  // From here on the object closes the file, also where a check below throws.
  std::unique_ptr<MappedFile> file(new MappedFile(nullptr, 0, descriptor));
  struct stat status;
  if (::fstat(descriptor, &status) != 0) fail(path);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ArtifactReason::kNotFound, path + ": wanted a regular file");
  }
  if (status.st_size > 0) {
    size_t size = static_cast<size_t>(status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) fail(path);
    file->data_ = static_cast<const uint8_t*>(data);
    file->size_ = size;
  }
  return file;
}

std::unique_ptr<MappedFile> MappedFile::copy(const void* data, size_t size) {
  expect_memory(data, size);
  constexpr std::align_val_t kAligned{kAlignment};
  std::shared_ptr<void> copy(::operator new(size, kAligned),
                             [](void* memory) { ::operator delete(memory, kAligned); });
  if (size > 0) std::memcpy(copy.get(), data, size);
  return borrow(copy.get(), size, copy);
}

std::unique_ptr<MappedFile> MappedFile::borrow(const void* data, size_t size,
                                               std::shared_ptr<const void> owner) {
  expect_memory(data, size);
  const size_t beyond = reinterpret_cast<uintptr_t>(data) % kAlignment;
  if (beyond != 0) {
    throw Error(ErrorKind::kInput, "artifact: wanted bytes at a multiple of 64, got " +
                                       std::to_string(beyond) + " beyond one");
  }
  std::unique_ptr<MappedFile> file(new MappedFile(static_cast<const uint8_t*>(data), size, -1));
  file->owner_ = std::move(owner);
  return file;
}

MappedFile::MappedFile(const uint8_t* data, size_t size, int descriptor)
    : data_(data), size_(size), descriptor_(descriptor) {}

MappedFile::~MappedFile() {
  if (descriptor_ < 0) return;
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
  ::close(descriptor_);
}

uint64_t MappedFile::checksum(size_t offset, size_t size) const {
  if (descriptor_ < 0 || size <= kChunk) return heddle::checksum(data_ + offset, size);
  // Reading leaves the pages in the page cache alone; touching the mapping would make them ours.
  std::vector<uint8_t> chunk(kChunk);
  Checksum sum;
  while (size > 0) {
    ssize_t count =
        ::pread(descriptor_, chunk.data(), std::min(size, kChunk), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw Error(ArtifactReason::kTruncated, "cannot be read at byte " + std::to_string(offset));
    }
    sum.update(chunk.data(), static_cast<size_t>(count));
    offset += static_cast<size_t>(count);
    size -= static_cast<size_t>(count);
  }
  return sum.value();
}

void MappedFile::forget_pages() const {
  if (descriptor_ >= 0 && data_ != nullptr) {
    ::madvise(const_cast<uint8_t*>(data_), size_, MADV_DONTNEED);
  }
}

}  // namespace heddle
