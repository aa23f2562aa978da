#include "describe.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::bindings {
namespace {

nb::str text(const Artifact& artifact, Str str) {
  const std::string_view view = artifact.text(str);
  return nb::str(view.data(), view.size());
}

nb::object size(const Artifact& artifact, Slot slot) {
  const SizeRecord& record = artifact.sizes()[slot];
  if (record.op == SizeOp::kNumber) return nb::int_(record.b);
  return nb::str(artifact.size_text(slot).c_str());
}

// The sizes of a shape: numbers, and texts where they depend on symbols.
nb::list shape_list(const Artifact& artifact, Range range) {
  nb::list sizes;
  for (Slot slot : artifact.dims(range)) sizes.append(size(artifact, slot));
  return sizes;
}

const char* dtype(uint32_t number) { return dtype_name(static_cast<DType>(number)); }

nb::list tensors(const Artifact& artifact, Span<TensorRecord> records) {
  nb::list rows;
  for (const TensorRecord& record : records) {
    nb::dict row;
    row["name"] = text(artifact, record.name);
    row["dtype"] = dtype(record.dtype);
    row["shape"] = shape_list(artifact, record.shape);
    rows.append(row);
  }
  return rows;
}

std::string hex(const uint8_t* bytes, size_t count) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string digits;
  for (size_t i = 0; i < count; ++i) {
    digits += kDigits[bytes[i] >> 4];
    digits += kDigits[bytes[i] & 15];
  }
  return digits;
}

nb::dict code_row(const Artifact& artifact, const CodeRecord& code) {
  constexpr const char* kFormats[] = {"image", "cubin", "ptx"};
  nb::dict row;
  row["arch"] = text(artifact, code.arch);
  row["format"] = kFormats[static_cast<uint32_t>(code.format) - 1];
  row["bytes"] = code.size;
  row["offset"] =
      artifact.sections()[static_cast<uint32_t>(Section::kCode) - 1].offset + code.offset;
  row["entry"] = code.entry;
  row["registers"] = code.registers;
  row["spilled_bytes"] = code.spills;
  row["launch"] = code.launch;
  return row;
}

nb::dict launch_row(const LaunchRecord& launch) {
  nb::dict row;
  row["block"] = std::vector<uint32_t>(launch.block, launch.block + 3);
  row["shared_bytes"] = launch.shared;
  row["cluster"] = launch.cluster;
  row["resident"] = launch.resident;
  row["overlaps"] = (launch.flags & kLaunchOverlaps) != 0;
  row["tensor_maps"] = launch.tensor_maps;
  return row;
}

nb::list kernel_rows(const Artifact& artifact, const ProgramRecord& program) {
  nb::list rows;
  for (const KernelRecord& kernel : artifact.kernels(program)) {
    nb::list codes;
    for (const CodeRecord& code : artifact.codes(kernel)) codes.append(code_row(artifact, code));
    nb::list launches;
    for (const LaunchRecord& launch : artifact.launches(kernel)) {
      launches.append(launch_row(launch));
    }
    nb::dict row;
    row["name"] = text(artifact, kernel.name);
    row["checks"] = (kernel.flags & kKernelChecks) != 0;
    row["buffers"] = kernel.buffers;
    row["dims"] = kernel.dims;
    row["launches"] = launches;
    row["codes"] = codes;
    rows.append(row);
  }
  return rows;
}

nb::dict routine(const Artifact& artifact, const ProgramRecord& program, Range range, Slot arena) {
  nb::list steps;
  for (const InstructionRecord& instruction : artifact.instructions(range)) {
    nb::list grids;
    Span<Slot> slots = artifact.dims(instruction.grids);
    for (size_t first = 0; first < slots.size(); first += 3) {
      nb::list grid;
      for (size_t axis = 0; axis < 3; ++axis) grid.append(size(artifact, slots[first + axis]));
      grids.append(grid);
    }
    nb::dict row;
    row["label"] = text(artifact, instruction.label);
    if (instruction.opcode == Opcode::kDispatch) {
      row["kernel"] = text(artifact, artifact.kernels(program)[instruction.kernel].name);
      row["grids"] = grids;
      row["work"] = size(artifact, instruction.work);
    } else {
      row["copied_bytes"] = size(artifact, instruction.work);
    }
    steps.append(row);
  }
  nb::dict row;
  row["arena_bytes"] = size(artifact, arena);
  row["instructions"] = steps;
  return row;
}

std::vector<std::string> common_archs(const Artifact& artifact, const ProgramRecord& program) {
  std::vector<std::string> common;
  bool first = true;
  for (const KernelRecord& kernel : artifact.kernels(program)) {
    std::vector<std::string> archs;
    for (const CodeRecord& code : artifact.codes(kernel)) {
      const bool ptx = code.format == CodeFormat::kPtx;
      archs.push_back(std::string(artifact.text(code.arch)) + (ptx ? " (ptx)" : ""));
    }
    if (first) common = archs;
    first = false;
    common.erase(std::remove_if(common.begin(), common.end(),
                                [&](const std::string& arch) {
                                  return std::find(archs.begin(), archs.end(), arch) == archs.end();
                                }),
                 common.end());
  }
  return common;
}

}  // namespace

nb::dict provenance(const Artifact& artifact) {
  nb::dict rows;
  for (const ProvenanceRecord& record : artifact.provenance()) {
    rows[text(artifact, record.key)] = text(artifact, record.value);
  }
  return rows;
}

nb::list symbols(const Artifact& artifact) {
  nb::list rows;
  for (const SymbolRecord& record : artifact.symbols()) {
    nb::dict row;
    row["name"] = text(artifact, record.name);
    row["minimum"] = record.minimum;
    row["maximum"] = record.maximum;
    rows.append(row);
  }
  return rows;
}

nb::list inputs(const Artifact& artifact) { return tensors(artifact, artifact.inputs()); }

nb::list outputs(const Artifact& artifact) { return tensors(artifact, artifact.outputs()); }

nb::list weights(const Artifact& artifact) {
  nb::list rows;
  for (const WeightRecord& record : artifact.weights()) {
    const bool known = (record.flags & kWeightHasSha256) != 0;
    nb::dict row;
    row["name"] = text(artifact, record.name);
    row["dtype"] = dtype(record.dtype);
    row["shape"] = shape_list(artifact, record.shape);
    row["bytes"] = record.size;
    row["embedded"] = (record.flags & (kWeightEmbedded | kWeightSettled)) != 0;
    row["settled"] = (record.flags & kWeightSettled) != 0;
    row["sha256"] = known ? hex(record.sha256, sizeof record.sha256) : std::string();
    rows.append(row);
  }
  return rows;
}

nb::list programs(const Artifact& artifact) {
  nb::list rows;
  for (const ProgramRecord& program : artifact.programs()) {
    nb::dict row;
    row["target"] = kind_name(static_cast<DeviceKind>(program.target));
    row["state_bytes"] = program.state;
    row["overlaps"] = (program.flags & kProgramOverlaps) != 0;
    row["kernels"] = kernel_rows(artifact, program);
    row["init"] = routine(artifact, program, program.init, program.init_arena);
    row["main"] = routine(artifact, program, program.main, program.main_arena);
    rows.append(row);
  }
  return rows;
}

nb::list requirements(const Artifact& artifact) {
  nb::list rows;
  for (const ProgramRecord& program : artifact.programs()) {
    nb::dict row;
    row["target"] = kind_name(static_cast<DeviceKind>(program.target));
    row["any_of"] = common_archs(artifact, program);
    rows.append(row);
  }
  return rows;
}

nb::dict describe(const Artifact& artifact) {
  uint64_t constants = 0;
  for (const ConstantRecord& record : artifact.constants()) constants += record.size;
  nb::dict sections;
  for (const SectionRecord& record : artifact.sections()) {
    sections[section_name(static_cast<Section>(record.kind))] = record.size;
  }
  nb::dict all;
  all["name"] = std::string(artifact.name());
  all["path"] = artifact.path();
  all["format"] = kFormatVersion;
  all["bytes"] = artifact.size();
  all["provenance"] = provenance(artifact);
  all["symbols"] = symbols(artifact);
  all["inputs"] = inputs(artifact);
  all["outputs"] = outputs(artifact);
  all["weights"] = weights(artifact);
  all["constant_bytes"] = constants;
  all["requirements"] = requirements(artifact);
  all["programs"] = programs(artifact);
  all["sections"] = sections;
  return all;
}

std::vector<TensorSpec> specs(const Artifact& artifact, Span<TensorRecord> records) {
  std::vector<TensorSpec> rows;
  for (const TensorRecord& record : records) {
    TensorSpec& row = rows.emplace_back();
    row.name = artifact.text(record.name);
    row.dtype = dtype(record.dtype);
    row.shape = nb::tuple(shape_list(artifact, record.shape));
    row.text = row.name + ": " + row.dtype + artifact.shape_text(record.shape);
  }
  return rows;
}

}  // namespace heddle::bindings
