#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/dtype.h"
#include "heddle/mapped_file.h"
#include "heddle/shape.h"

namespace heddle {

/// A tensor in a weights file: `data` points into the mapping, at any alignment.
struct NamedTensor {
  std::string name;
  DType dtype;
  Shape shape;
  const void* data;
};

/// A mapped safetensors file: u64 size of a JSON header, the header, the data.
class Safetensors {
 public:
  /// Throws an artifact error: `kNotFound`, or `kWeights` for a file that is truncated or wrong.
  static std::shared_ptr<const Safetensors> open(const std::string& path);

  /// In the order of the header.
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  const std::string& path() const { return path_; }

  /// As that of `MappedFile`: what loading read to pack it need not stay resident.
  void forget_pages() const { file_->forget_pages(); }

 private:
  Safetensors() = default;

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace heddle
