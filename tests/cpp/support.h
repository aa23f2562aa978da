#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "heddle/artifact.h"
#include "heddle/checksum.h"
#include "heddle/cpu.h"
#include "heddle/error.h"
#include "heddle/model.h"

namespace heddle::test {

using Bytes = std::vector<uint8_t>;

inline Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

/// The golden artifact `tests/golden/tiny.heddle`.
inline const Bytes& tiny_bytes() {
  static const Bytes kBytes = read_file(HEDDLE_GOLDEN "/tiny.heddle");
  return kBytes;
}

inline std::shared_ptr<const Artifact> parse(const Bytes& bytes) {
  return Artifact::from_memory(bytes.data(), bytes.size());
}

inline std::shared_ptr<Device> cpu() {
  static auto device = std::make_shared<CpuDevice>(ThreadPoolOptions{2, false, 50});
  return device;
}

/// What `action` throws; the test fails where it throws nothing.
inline Error caught(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  FAIL("wanted an error, got none");
  throw;
}

/// The message of the input error that `action` throws.
inline std::string refused(const std::function<void()>& action) {
  const Error error = caught(action);
  CHECK(error.kind() == ErrorKind::kInput);
  return error.what();
}

/// The sections of an artifact in memory, to be changed and sealed again.
class Patch {
 public:
  explicit Patch(Bytes bytes = tiny_bytes()) : bytes_(std::move(bytes)) {}

  HeaderRecord& header() { return *reinterpret_cast<HeaderRecord*>(bytes_.data()); }
  SectionRecord& row(Section section) {
    return reinterpret_cast<SectionRecord*>(
        bytes_.data() + sizeof(HeaderRecord))[static_cast<uint32_t>(section) - 1];
  }
  template <class T>
  T* records(Section section) {
    return reinterpret_cast<T*>(bytes_.data() + row(section).offset);
  }

  /// Makes all checksums right again.
  const Bytes& seal() {
    for (uint32_t kind = 1; kind <= kSectionCount; ++kind) {
      SectionRecord& section = row(static_cast<Section>(kind));
      if (section.offset > bytes_.size() || section.size > bytes_.size() - section.offset) continue;
      section.checksum = checksum(bytes_.data() + section.offset, section.size);
    }
    header().table_checksum =
        checksum(bytes_.data() + sizeof(HeaderRecord), kSectionCount * sizeof(SectionRecord));
    header().checksum = checksum(bytes_.data(), offsetof(HeaderRecord, checksum));
    return bytes_;
  }

  Bytes& bytes() { return bytes_; }

 private:
  Bytes bytes_;
};

template <class T>
TensorView view(std::vector<T>& values, DType dtype, const Shape& shape) {
  return {values.data(), dtype, DeviceKind::kCpu, 0, shape};
}

/// Inputs, outputs and weight of the tiny artifact.
struct Tiny {
  explicit Tiny(int64_t batch)
      : x(static_cast<size_t>(batch) * 4),
        indices(static_cast<size_t>(batch)),
        pairs(static_cast<size_t>(batch) * 2),
        shifted(x.size()),
        same(x.size()) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i % 6);
    inputs = {view(x, DType::kFloat32, {batch, 4}), view(indices, DType::kInt64, {batch}),
              view(pairs, DType::kInt8, {batch * 2})};
    outputs = {view(shifted, DType::kFloat32, {batch, 4}),
               view(same, DType::kFloat32, {batch * 4})};
  }

  Span<TensorView> in() const { return inputs; }
  Span<TensorView> out() const { return outputs; }

  /// x + (weight + constant) + table[index], as the artifact says.
  float wanted(size_t i) const {
    static constexpr float kRow[] = {10.5, 21.5, 32.5, 43.5};
    return x[i] + kRow[i % 4] + 100.0f * static_cast<float>(indices[i / 4]);
  }

  std::vector<float> x;
  std::vector<int64_t> indices;
  std::vector<int8_t> pairs;
  std::vector<float> shifted, same;
  std::vector<TensorView> inputs, outputs;
};

inline const float kTinyWeight[4] = {10, 20, 30, 40};

inline std::vector<WeightSource> tiny_weights() {
  return {{"weight", DType::kFloat32, {4}, kTinyWeight, nullptr}};
}

inline std::unique_ptr<Model> tiny_model() {
  return std::make_unique<Model>(Program::load(parse(tiny_bytes()), cpu()), tiny_weights());
}

}  // namespace heddle::test
