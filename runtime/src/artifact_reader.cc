#include "artifact_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "heddle/checksum.h"
#include "heddle/mapped_file.h"

namespace heddle {
namespace {

constexpr uint64_t kAlignment = 64;

// By kind, from 1 on; the sizes of docs/artifact.md.
constexpr uint32_t kRecordSizes[kSectionCount] = {1,
                                                  sizeof(ModelRecord),
                                                  sizeof(ProvenanceRecord),
                                                  sizeof(SymbolRecord),
                                                  sizeof(SizeRecord),
                                                  sizeof(Slot),
                                                  sizeof(TensorRecord),
                                                  sizeof(WeightRecord),
                                                  sizeof(ConstantRecord),
                                                  sizeof(ProgramRecord),
                                                  sizeof(KernelRecord),
                                                  sizeof(LaunchRecord),
                                                  sizeof(CodeRecord),
                                                  sizeof(BufferRecord),
                                                  sizeof(InstructionRecord),
                                                  sizeof(TensorMapRecord),
                                                  sizeof(uint32_t),
                                                  1,
                                                  1,
                                                  1};

constexpr uint32_t kCodeRow = static_cast<uint32_t>(Section::kCode) - 1;

constexpr size_t kMagicName = 4;  // bytes of the magic before the ends of lines

constexpr const char* kFileBytes = "file: bytes";

constexpr uint64_t kTableSize = kSectionCount * sizeof(SectionRecord);

constexpr const char* kDamaged = " (the file is damaged: copy or compile it again)";

[[noreturn]] void refuse(ArtifactReason reason, const std::string& where, uint64_t wanted,
                         uint64_t got) {
  const char* remedy = "";
  if (reason == ArtifactReason::kChecksum || reason == ArtifactReason::kTruncated ||
      where == kFileBytes) {
    remedy = kDamaged;
  } else if (reason == ArtifactReason::kVersion) {
    remedy = " (compile it again)";
  }
  throw Error(reason, where + ": wanted " + std::to_string(wanted) + ", got " +
                          std::to_string(got) + remedy);
}

void expect(ArtifactReason reason, const char* where, uint64_t wanted, uint64_t got) {
  if (wanted != got) refuse(reason, where, wanted, got);
}

uint64_t align(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::shared_ptr<const Artifact> ArtifactReader::read(std::unique_ptr<MappedFile> file,
                                                     std::string path) {
  std::shared_ptr<Artifact> artifact(new Artifact());
  artifact->path_ = std::move(path);
  artifact->data_ = file->data();
  artifact->size_ = file->size();
  artifact->file_ = std::move(file);
  try {
    ArtifactReader reader(*artifact);
    reader.read_header();
    reader.read_table();
    reader.read_sections();
    Verifier verifier(*artifact);
    verifier.signature();
    verifier.programs();
  } catch (const Error& error) {
    throw Error(error.reason(), artifact->path_ + ": " + error.what());
  }
  return artifact;
}

void ArtifactReader::read_header() {
  size_t size = artifact_.size_;
  if (size > 0 && std::memcmp(artifact_.data_, kMagic, std::min(size, sizeof(kMagic))) != 0) {
    // What comes behind its name are ends of lines, as a copy in text mode changes them.
    const bool named = size >= kMagicName && std::memcmp(artifact_.data_, kMagic, kMagicName) == 0;
    throw Error(ArtifactReason::kNotAnArtifact,
                std::string("header: wanted the magic bytes of a Heddle artifact, got ") +
                    (named ? std::string("them changed") + kDamaged : "another file's"));
  }
  if (size < sizeof(HeaderRecord)) {
    refuse(ArtifactReason::kTruncated, "header: bytes", sizeof(HeaderRecord), size);
  }
  const auto& header = *reinterpret_cast<const HeaderRecord*>(artifact_.data_);
  expect(ArtifactReason::kVersion, "header: format version", kFormatVersion, header.version);
  expect(ArtifactReason::kChecksum, "header: checksum",
         checksum(&header, offsetof(HeaderRecord, checksum)), header.checksum);
  if (size < header.file_size) {
    refuse(ArtifactReason::kTruncated, kFileBytes, header.file_size, size);
  }
  expect(ArtifactReason::kMalformed, kFileBytes, header.file_size, size);
  expect(ArtifactReason::kMalformed, "header: sections", kSectionCount, header.sections);
  for (uint8_t byte : header.zero) {
    expect(ArtifactReason::kMalformed, "header: zero", 0, byte);
  }
}

void ArtifactReader::read_table() {
  const auto& header = *reinterpret_cast<const HeaderRecord*>(artifact_.data_);
  if (artifact_.size_ < sizeof(header) + kTableSize) {
    refuse(ArtifactReason::kTruncated, "section table: bytes", sizeof(header) + kTableSize,
           artifact_.size_);
  }
  auto check = [&](const uint8_t* data) {
    const uint8_t* table = data + sizeof(header);
    expect(ArtifactReason::kChecksum, "section table: checksum", checksum(table, kTableSize),
           header.table_checksum);
    artifact_.table_ = reinterpret_cast<const SectionRecord*>(table);
  };
  check(artifact_.data_);
  const uint64_t end = std::max(artifact_.table_[kCodeRow].offset, sizeof(header) + kTableSize);
  artifact_.copy_ = MappedFile::copy(artifact_.data_, std::min<uint64_t>(end, artifact_.size_));
  artifact_.records_ = artifact_.copy_->data();
  check(artifact_.records_);
}

void ArtifactReader::read_sections() {
  uint64_t end = sizeof(HeaderRecord) + kTableSize;
  for (uint32_t i = 0; i < kSectionCount; ++i) {
    const SectionRecord& row = artifact_.table_[i];
    const std::string where = std::string("section ") + section_name(static_cast<Section>(i + 1));
    auto expect_field = [&](const char* field, uint64_t wanted, uint64_t got) {
      if (wanted != got) refuse(ArtifactReason::kMalformed, where + field, wanted, got);
    };
    expect_field(": kind", i + 1, row.kind);
    expect_field(": record size", kRecordSizes[i], row.record_size);
    expect_field(": offset", align(end), row.offset);
    // `end` is inside the file; its alignment may pass the file's end by less than 64 bytes.
    uint64_t room = artifact_.size_ - std::min<uint64_t>(row.offset, artifact_.size_);
    if (row.size > room || row.offset > artifact_.size_) {
      refuse(ArtifactReason::kMalformed, where + ": bytes up to the file's end", room, row.size);
    }
    expect_field(": bytes beyond whole records", 0, row.size % row.record_size);
    for (; end < row.offset; ++end) {
      expect_field(": byte of the gap before it", 0, artifact_.data_[end]);
    }
    end = row.offset + row.size;
    const MappedFile& place = i < kCodeRow ? *artifact_.copy_ : *artifact_.file_;
    if (end > place.size()) {  // somebody has written into the file meanwhile
      refuse(ArtifactReason::kTruncated, where + ": bytes before the code", place.size(), end);
    }
    const uint64_t sum = place.checksum(row.offset, row.size);
    if (sum != row.checksum)
      refuse(ArtifactReason::kChecksum, where + ": checksum", row.checksum, sum);
  }
  expect(ArtifactReason::kMalformed, "file: end of the last section", artifact_.size_, end);
}

}  // namespace heddle
