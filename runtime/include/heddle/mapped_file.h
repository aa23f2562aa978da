#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace heddle {

/// The same path. Throws an input error for one with a NUL, where the system would stop and open
/// another file.
std::string whole_path(std::string path);

/// A file's bytes, mapped read-only, or bytes in memory at a multiple of 64.
class MappedFile {
 public:
  /// Throws an artifact error, `kNotFound`, where the file cannot be read, or as `whole_path`.
  static std::unique_ptr<MappedFile> open(const std::string& path);

  /// A copy of bytes. Throws an input error where there are some at a null pointer.
  static std::unique_ptr<MappedFile> copy(const void* data, size_t size);

  /// Bytes that `owner` keeps. Throws an input error where they lie at no multiple of 64, or as
  /// `copy`.
  static std::unique_ptr<MappedFile> borrow(const void* data, size_t size,
                                            std::shared_ptr<const void> owner);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  /// The checksum of a part, read without keeping it resident.
  uint64_t checksum(size_t offset, size_t size) const;

  /// Gives resident pages of a mapping back; they are read again where they are touched.
  void forget_pages() const;

 private:
  MappedFile(const uint8_t* data, size_t size, int descriptor);

  const uint8_t* data_;
  size_t size_;
  int descriptor_;                     // -1: bytes in memory
  std::shared_ptr<const void> owner_;  // of bytes in memory
};

}  // namespace heddle
