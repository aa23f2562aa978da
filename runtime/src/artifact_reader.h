#pragma once

#include <memory>
#include <string>

#include "heddle/artifact.h"
#include "heddle/error.h"

namespace heddle {

/// The one place that makes artifacts: nothing that it returns needs another check.
class ArtifactReader {
 public:
  static std::shared_ptr<const Artifact> read(std::unique_ptr<MappedFile> file, std::string path);

 private:
  explicit ArtifactReader(Artifact& artifact) : artifact_(artifact) {}

  void read_header();
  void read_table();
  void read_sections();

  Artifact& artifact_;
};

/// Checks of records, each with a message that says where, what was wanted and what was found.
class Verifier {
 public:
  explicit Verifier(const Artifact& artifact) : artifact_(artifact) {}

  /// Strings, model, symbols, sizes, tensors, weights and constants.
  void signature() const;

  /// Codes, and each program with its kernels, buffers and instructions; needs the signature.
  void programs() const;

 private:
  /// Bytes of texts that records may name in all, beside 8 times those of the file: many records
  /// can name one text, and who shows them writes it as often.
  static constexpr uint64_t kMostText = uint64_t{1} << 20;

  /// A field of one record, for messages.
  struct Field {
    Section section;
    size_t record;
    const char* name;
  };

  template <class Number>
  void expect(bool fine, Field field, const char* wanted, Number got) const {
    if (!fine) fail(field, wanted, std::to_string(got));
  }
  template <class Number>
  void expect_below(Number value, uint64_t limit, Field field) const;
  void expect_text(Str str, Field field) const;
  void add_text(uint64_t bytes, Field field) const;
  void expect_range(Range range, Section target, Field field) const;
  void expect_data(uint64_t offset, uint64_t size, Section target, uint64_t* end,
                   Field field) const;
  void expect_number(Slot slot, Field field) const;
  void expect_shape(Range range, Field field) const;
  template <size_t size>
  void expect_zero(const uint8_t (&bytes)[size], Field field) const;
  template <class Names>
  void expect_unique(const Names& records, Section section, size_t first) const;
  [[noreturn]] void fail(Field field, const std::string& wanted, const std::string& got) const;

  uint64_t count(Section section) const;

  void strings() const;
  void model() const;
  void symbols() const;
  void sizes() const;
  void tensors() const;
  void bindings() const;
  void weights() const;
  void constants() const;
  void codes() const;
  void program(size_t number) const;
  void kernels(const ProgramRecord& program) const;
  void buffers(const ProgramRecord& program) const;
  void placed(const ProgramRecord& program, const BufferRecord& buffer, size_t record) const;
  void instructions(const ProgramRecord& program, Range range, bool init) const;
  void arguments(const ProgramRecord& program, const InstructionRecord& instruction, size_t record,
                 bool init) const;
  void launches(const KernelRecord& kernel) const;
  void tensor_maps(const InstructionRecord& instruction, bool init) const;

  const Artifact& artifact_;
  mutable uint64_t text_ = 0;  // bytes of the texts that were looked at
};

template <class Number>
void Verifier::expect_below(Number value, uint64_t limit, Field field) const {
  if (static_cast<uint64_t>(value) >= limit) {  // a negative one, too
    fail(field, "a number below " + std::to_string(limit), std::to_string(value));
  }
}

template <size_t size>
void Verifier::expect_zero(const uint8_t (&bytes)[size], Field field) const {
  for (uint8_t byte : bytes) expect(byte == 0, field, "zero", byte);
}

}  // namespace heddle
