#include "heddle/artifact.h"

#include <utility>

#include "artifact_reader.h"
#include "heddle/mapped_file.h"

namespace heddle {

const char* section_name(Section section) {
  static constexpr const char* kNames[] = {"strings",   "model",    "provenance",    "symbols",
                                           "sizes",     "dims",     "tensors",       "weights",
                                           "constants", "programs", "kernels",       "launches",
                                           "codes",     "buffers",  "instructions",  "tensor maps",
                                           "arguments", "code",     "constant data", "weight data"};
  return kNames[static_cast<uint32_t>(section) - 1];
}

std::shared_ptr<const Artifact> Artifact::open(const std::string& path, const std::string& name) {
  return ArtifactReader::read(MappedFile::open(path), name);
}

std::shared_ptr<const Artifact> Artifact::from_memory(const void* data, size_t size) {
  return ArtifactReader::read(MappedFile::copy(data, size), "<memory>");
}

std::shared_ptr<const Artifact> Artifact::from_memory(const void* data, size_t size,
                                                      std::shared_ptr<const void> owner) {
  return ArtifactReader::read(MappedFile::borrow(data, size, std::move(owner)), "<memory>");
}

Artifact::~Artifact() = default;

std::string_view Artifact::text(Str str) const {
  return {records<char>(Section::kStrings).data() + str.offset, str.length};
}

Span<SectionRecord> Artifact::sections() const { return {table_, kSectionCount}; }

Span<TensorRecord> Artifact::inputs() const {
  const Range range = model().inputs;
  return records<TensorRecord>(Section::kTensors).part(range.first, range.count);
}

Span<TensorRecord> Artifact::outputs() const {
  const Range range = model().outputs;
  return records<TensorRecord>(Section::kTensors).part(range.first, range.count);
}

Span<Slot> Artifact::dims(Range range) const {
  return records<Slot>(Section::kDims).part(range.first, range.count);
}

Span<KernelRecord> Artifact::kernels(const ProgramRecord& program) const {
  const Range range = program.kernels;
  return records<KernelRecord>(Section::kKernels).part(range.first, range.count);
}

Span<BufferRecord> Artifact::buffers(const ProgramRecord& program) const {
  const Range range = program.buffers;
  return records<BufferRecord>(Section::kBuffers).part(range.first, range.count);
}

Span<InstructionRecord> Artifact::instructions(Range range) const {
  return records<InstructionRecord>(Section::kInstructions).part(range.first, range.count);
}

Span<uint32_t> Artifact::arguments(const InstructionRecord& instruction) const {
  const Range range = instruction.buffers;
  return records<uint32_t>(Section::kArguments).part(range.first, range.count);
}

Span<LaunchRecord> Artifact::launches(const KernelRecord& kernel) const {
  const Range range = kernel.launches;
  return records<LaunchRecord>(Section::kLaunches).part(range.first, range.count);
}

Span<TensorMapRecord> Artifact::tensor_maps(const InstructionRecord& instruction) const {
  const Range range = instruction.tensor_maps;
  return records<TensorMapRecord>(Section::kTensorMaps).part(range.first, range.count);
}

Span<CodeRecord> Artifact::codes(const KernelRecord& kernel) const {
  return records<CodeRecord>(Section::kCodes).part(kernel.codes.first, kernel.codes.count);
}

const uint8_t* Artifact::code(const CodeRecord& record) const {
  return records<uint8_t>(Section::kCode).data() + record.offset;
}

const uint8_t* Artifact::constant(const ConstantRecord& record) const {
  return records<uint8_t>(Section::kConstantData).data() + record.offset;
}

void Artifact::forget_pages() const { file_->forget_pages(); }

const uint8_t* Artifact::embedded(const WeightRecord& record) const {
  return records<uint8_t>(Section::kWeightData).data() + record.offset;
}

Shape Artifact::shape(const WeightRecord& record) const {
  int64_t values[kMaxRank];
  Span<Slot> slots = dims(record.shape);
  for (size_t axis = 0; axis < slots.size(); ++axis) values[axis] = sizes()[slots[axis]].b;
  return Shape(values, slots.size());
}

}  // namespace heddle
