#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "heddle/dtype.h"
#include "heddle/live.h"
#include "heddle/records.h"
#include "heddle/shape.h"
#include "heddle/span.h"

namespace heddle {

class MappedFile;

/// A verified artifact. Whoever holds one may follow every reference in it without a check: all
/// that `docs/artifact.md` demands has been checked before the constructor returned. It knows who
/// shares it: a handle that comes from Python is then one of C++, whose end needs no GIL.
class Artifact : Counted<Artifact>, public std::enable_shared_from_this<Artifact> {
 public:
  using Counted<Artifact>::live;

  /// Maps and verifies a file. Throws an artifact error with the reason.
  static std::shared_ptr<const Artifact> open(const std::string& path) { return open(path, path); }

  /// The same of a file that will be called `name`, as `path()` and errors call it already.
  static std::shared_ptr<const Artifact> open(const std::string& path, const std::string& name);

  /// Verifies a copy of `size` bytes at `data`. Throws an artifact error with the reason.
  static std::shared_ptr<const Artifact> from_memory(const void* data, size_t size);

  /// Verifies bytes where they are, at a multiple of 64; `owner` keeps them, and as they are.
  static std::shared_ptr<const Artifact> from_memory(const void* data, size_t size,
                                                     std::shared_ptr<const void> owner);

  ~Artifact();
  Artifact(const Artifact&) = delete;
  Artifact& operator=(const Artifact&) = delete;

  /// The path, or `"<memory>"`.
  const std::string& path() const { return path_; }
  size_t size() const { return size_; }

  /// Its bytes, `size()` of them, as they are in the file.
  const uint8_t* data() const { return data_; }

  /// All records of a section.
  template <class T>
  Span<T> records(Section section) const {
    const SectionRecord& row = table_[static_cast<uint32_t>(section) - 1];
    const uint8_t* base = section < Section::kCode ? records_ : data_;
    return {reinterpret_cast<const T*>(base + row.offset), row.size / sizeof(T)};
  }

  std::string_view text(Str str) const;
  std::string_view name() const { return text(model().name); }

  Span<SectionRecord> sections() const;
  const ModelRecord& model() const { return records<ModelRecord>(Section::kModel)[0]; }
  Span<ProvenanceRecord> provenance() const {
    return records<ProvenanceRecord>(Section::kProvenance);
  }
  Span<SymbolRecord> symbols() const { return records<SymbolRecord>(Section::kSymbols); }
  Span<SizeRecord> sizes() const { return records<SizeRecord>(Section::kSizes); }
  Span<TensorRecord> inputs() const;
  Span<TensorRecord> outputs() const;
  Span<WeightRecord> weights() const { return records<WeightRecord>(Section::kWeights); }
  Span<ConstantRecord> constants() const { return records<ConstantRecord>(Section::kConstants); }
  Span<ProgramRecord> programs() const { return records<ProgramRecord>(Section::kPrograms); }

  Span<Slot> dims(Range range) const;
  Span<KernelRecord> kernels(const ProgramRecord& program) const;
  Span<BufferRecord> buffers(const ProgramRecord& program) const;
  Span<InstructionRecord> instructions(Range range) const;
  Span<uint32_t> arguments(const InstructionRecord& instruction) const;
  Span<LaunchRecord> launches(const KernelRecord& kernel) const;
  Span<CodeRecord> codes(const KernelRecord& kernel) const;
  Span<TensorMapRecord> tensor_maps(const InstructionRecord& instruction) const;

  const uint8_t* code(const CodeRecord& record) const;
  const uint8_t* constant(const ConstantRecord& record) const;

  /// The bytes of a weight with the flag `kWeightEmbedded`, mapped from the file.
  const uint8_t* embedded(const WeightRecord& record) const;

  /// Gives the file's resident pages back; weights that are used where they lie come in again.
  void forget_pages() const;

  /// The shape of a weight, which is static.
  Shape shape(const WeightRecord& record) const;

  /// A size as a person writes it: `"batch * 384"`.
  std::string size_text(Slot slot) const;

  /// A shape as a person writes it: `"[batch, 384]"`.
  std::string shape_text(Range range) const;

 private:
  friend class ArtifactReader;
  Artifact() = default;

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::unique_ptr<MappedFile> copy_;  // of all before the code: who writes into the file cannot
                                      // change what was verified
  const uint8_t* data_ = nullptr;
  const uint8_t* records_ = nullptr;
  size_t size_ = 0;
  const SectionRecord* table_ = nullptr;
};

}  // namespace heddle
