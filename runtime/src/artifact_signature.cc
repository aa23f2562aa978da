#include <algorithm>
#include <string_view>
#include <vector>

#include "artifact_reader.h"
#include "utf8.h"

namespace heddle {
namespace {

constexpr int64_t kLargestDim = (int64_t{1} << 40) - 1;
constexpr uint32_t kLongestName = 4096;

bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

void Verifier::fail(Field field, const std::string& wanted, const std::string& got) const {
  throw Error(ArtifactReason::kMalformed, std::string("section ") + section_name(field.section) +
                                              ", record " + std::to_string(field.record) + ", " +
                                              field.name + ": wanted " + wanted + ", got " + got);
}

uint64_t Verifier::count(Section section) const {
  const SectionRecord& row = artifact_.sections()[static_cast<uint32_t>(section) - 1];
  return row.size / row.record_size;
}

void Verifier::expect_text(Str str, Field field) const {
  Span<char> strings = artifact_.records<char>(Section::kStrings);
  uint64_t end = uint64_t{str.offset} + str.length;
  if (end > strings.size()) {
    fail(field, "text inside the " + std::to_string(strings.size()) + " bytes of strings",
         "one that ends at " + std::to_string(end));
  }
  // The whole section is UTF-8, so a text is if it starts and ends between characters.
  bool inside = (str.offset < strings.size() && continues(strings[str.offset])) ||
                (end < strings.size() && continues(strings[end]));
  expect(!inside, field, "text that starts and ends between characters", str.offset);
  add_text(str.length, field);
}

void Verifier::add_text(uint64_t bytes, Field field) const {
  text_ += bytes;
  const uint64_t most = kMostText + 8 * uint64_t{artifact_.size()};
  if (text_ > most) {
    fail(field, "at most " + std::to_string(most) + " bytes of texts in all", "more");
  }
}

void Verifier::expect_range(Range range, Section target, Field field) const {
  uint64_t end = uint64_t{range.first} + range.count;
  if (end > count(target)) {
    fail(field,
         "records inside the " + std::to_string(count(target)) + " of " + section_name(target),
         "a range that ends at " + std::to_string(end));
  }
}

void Verifier::expect_data(uint64_t offset, uint64_t size, Section target, uint64_t* end,
                           Field field) const {
  expect(offset % 64 == 0, field, "an offset that is a multiple of 64", offset);
  if (offset < *end) {
    fail(field, "an offset of " + std::to_string(*end) + " or more, behind the one before",
         std::to_string(offset));
  }
  uint64_t limit = count(target);
  if (offset > limit || size > limit - offset) {
    fail(field, "bytes inside the " + std::to_string(limit) + " of " + section_name(target),
         std::to_string(size) + " at " + std::to_string(offset));
  }
  *end = offset + size;
}

void Verifier::expect_number(Slot slot, Field field) const {
  expect_below(slot, count(Section::kSizes), field);
  if (artifact_.sizes()[slot].op != SizeOp::kNumber) {
    fail(field, "a size that is a number", "'" + artifact_.size_text(slot) + "'");
  }
}

void Verifier::expect_shape(Range range, Field field) const {
  expect_range(range, Section::kDims, field);
  expect(range.count <= kMaxRank, field, "at most 16 dimensions", range.count);
}

template <class Names>
void Verifier::expect_unique(const Names& records, Section section, size_t first) const {
  std::vector<std::string_view> names;
  names.reserve(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    Field field{section, first + i, "name"};
    expect_text(records[i].name, field);
    expect(records[i].name.length <= kLongestName, field, "at most 4096 bytes",
           records[i].name.length);
    names.push_back(artifact_.text(records[i].name));
  }
  std::sort(names.begin(), names.end());
  auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return;
  for (size_t i = 0; i < records.size(); ++i) {
    if (artifact_.text(records[i].name) == *twice) {
      fail({section, first + i, "name"}, "names that differ",
           "'" + std::string(*twice) + "' twice");
    }
  }
}

void Verifier::signature() const {
  strings();
  model();
  symbols();
  sizes();
  tensors();
  bindings();
  weights();
  constants();
}

void Verifier::strings() const {
  Span<uint8_t> bytes = artifact_.records<uint8_t>(Section::kStrings);
  if (!is_utf8(bytes.data(), bytes.size())) {
    throw Error(ArtifactReason::kMalformed,
                "section strings: wanted UTF-8 without NUL, got other bytes");
  }
}

void Verifier::model() const {
  expect(count(Section::kModel) == 1, {Section::kModel, 0, "records"}, "1", count(Section::kModel));
  const ModelRecord& model = artifact_.model();
  auto field = [](const char* name) { return Field{Section::kModel, 0, name}; };
  expect_text(model.name, field("name"));
  expect_range(model.inputs, Section::kTensors, field("inputs"));
  expect_range(model.outputs, Section::kTensors, field("outputs"));
  expect(model.symbols == count(Section::kSymbols), field("symbols"), "the section's number",
         model.symbols);
  expect(model.weights == count(Section::kWeights), field("weights"), "the section's number",
         model.weights);
  expect(model.constants == count(Section::kConstants), field("constants"), "the section's number",
         model.constants);
  expect(model.programs == count(Section::kPrograms), field("programs"), "the section's number",
         model.programs);
  expect_zero(model.zero, field("zero"));
  Span<ProvenanceRecord> rows = artifact_.provenance();
  for (size_t i = 0; i < rows.size(); ++i) {
    expect_text(rows[i].key, {Section::kProvenance, i, "key"});
    expect_text(rows[i].value, {Section::kProvenance, i, "value"});
  }
}

void Verifier::symbols() const {
  Span<SymbolRecord> rows = artifact_.symbols();
  for (size_t i = 0; i < rows.size(); ++i) {
    int64_t low = rows[i].minimum, high = rows[i].maximum;
    if (low < 0 || low > high || high > kLargestDim) {
      fail({Section::kSymbols, i, "range"}, "0 <= minimum <= maximum < 2^40",
           std::to_string(low) + " to " + std::to_string(high));
    }
  }
  expect_unique(rows, Section::kSymbols, 0);
}

void Verifier::sizes() const {
  Span<SizeRecord> rows = artifact_.sizes();
  for (size_t i = 0; i < rows.size(); ++i) {
    const SizeRecord& row = rows[i];
    auto field = [i](const char* name) { return Field{Section::kSizes, i, name}; };
    uint32_t op = static_cast<uint32_t>(row.op);
    expect(op >= 1 && op <= 10, field("op"), "1 to 10", op);
    if (row.op == SizeOp::kNumber) {
      expect(row.a == 0, field("a"), "zero", row.a);
    } else if (row.op == SizeOp::kSymbol) {
      expect_below(row.a, count(Section::kSymbols), field("a"));
      expect(row.b == 0, field("b"), "zero", row.b);
    } else {
      expect_below(row.a, i, field("a"));
      expect_below(row.b, i, field("b"));
    }
  }
  Span<Slot> dims = artifact_.records<Slot>(Section::kDims);
  for (size_t i = 0; i < dims.size(); ++i) {
    expect_below(dims[i], rows.size(), {Section::kDims, i, "slot"});
  }
}

void Verifier::tensors() const {
  Span<TensorRecord> rows = artifact_.records<TensorRecord>(Section::kTensors);
  for (size_t i = 0; i < rows.size(); ++i) {
    expect_text(rows[i].name, {Section::kTensors, i, "name"});
    expect(is_dtype(rows[i].dtype), {Section::kTensors, i, "dtype"}, "1 to 15", rows[i].dtype);
    const Field shape{Section::kTensors, i, "shape"};
    expect_shape(rows[i].shape, shape);
    for (Slot slot : artifact_.dims(rows[i].shape)) {
      add_text(artifact_.size_text(slot).size(), shape);
    }
    expect(rows[i].zero == 0, {Section::kTensors, i, "zero"}, "zero", rows[i].zero);
  }
  expect_unique(artifact_.inputs(), Section::kTensors, artifact_.model().inputs.first);
  expect_unique(artifact_.outputs(), Section::kTensors, artifact_.model().outputs.first);
}

void Verifier::bindings() const {
  std::vector<bool> bound(artifact_.symbols().size());
  for (const TensorRecord& input : artifact_.inputs()) {
    for (Slot slot : artifact_.dims(input.shape)) {
      const SizeRecord& size = artifact_.sizes()[slot];
      if (size.op == SizeOp::kSymbol) bound[size.a] = true;
    }
  }
  for (size_t i = 0; i < bound.size(); ++i) {
    if (!bound[i]) {
      fail({Section::kSymbols, i, "name"}, "an input with a dimension that is the symbol",
           "none that binds '" + std::string(artifact_.text(artifact_.symbols()[i].name)) + "'");
    }
  }
}

void Verifier::weights() const {
  Span<WeightRecord> rows = artifact_.weights();
  uint64_t end = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const WeightRecord& row = rows[i];
    auto field = [i](const char* name) { return Field{Section::kWeights, i, name}; };
    expect(is_dtype(row.dtype), field("dtype"), "1 to 15", row.dtype);
    expect_shape(row.shape, field("shape"));
    for (Slot slot : artifact_.dims(row.shape)) expect_number(slot, field("shape"));
    constexpr uint32_t kBoth = kWeightEmbedded | kWeightSettled;
    expect(row.flags < 8 && (row.flags & kBoth) != kBoth, field("flags"),
           "bits 1, 2 and 4 alone, not 2 with 4", row.flags);
    auto bytes = artifact_.shape(row).bytes(static_cast<DType>(row.dtype));
    if (!bytes || static_cast<uint64_t>(*bytes) != row.size) {
      fail(field("size"), bytes ? std::to_string(*bytes) : "a shape of 0 or more bytes",
           std::to_string(row.size));
    }
    if (row.flags & kWeightEmbedded) {
      expect_data(row.offset, row.size, Section::kWeightData, &end, field("data"));
    } else {
      expect(row.offset == 0, field("offset"), "zero, for it is not embedded", row.offset);
    }
    if (!(row.flags & kWeightHasSha256)) expect_zero(row.sha256, field("sha256"));
  }
  expect_unique(rows, Section::kWeights, 0);
}

void Verifier::constants() const {
  Span<ConstantRecord> rows = artifact_.constants();
  uint64_t end = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    expect_data(rows[i].offset, rows[i].size, Section::kConstantData, &end,
                {Section::kConstants, i, "data"});
  }
}

}  // namespace heddle
