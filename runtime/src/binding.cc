#include <string>

#include "heddle/error.h"
#include "plan.h"

namespace heddle {
namespace {

std::string quoted(const Artifact& artifact, Str name) {
  return "'" + std::string(artifact.text(name)) + "'";
}

std::string named(const Artifact& artifact, const TensorRecord& tensor) {
  return "input " + quoted(artifact, tensor.name);
}

/// `dim 'sequence' of input 'tokens'`, or `axis 1 of input 'tokens'` for a number.
std::string dim_named(const Artifact& artifact, const TensorRecord& input, size_t axis) {
  Slot slot = artifact.dims(input.shape)[axis];
  bool number = artifact.sizes()[slot].op == SizeOp::kNumber;
  return (number ? "axis " + std::to_string(axis) : "dim '" + artifact.size_text(slot) + "'") +
         " of " + named(artifact, input);
}

}  // namespace

std::string listed(const Artifact& artifact, Span<TensorRecord> tensors, const char* what) {
  std::string text = std::to_string(tensors.size()) + " " + what + " (";
  const char* separator = "";
  for (const TensorRecord& tensor : tensors) {
    text += separator + std::string(artifact.text(tensor.name));
    separator = ", ";
  }
  return text + ")";
}

bool is_misplaced(const TensorView& view) {
  if (view.data == nullptr) return view.shape.bytes(view.dtype) != 0;
  return !is_aligned(view);
}

void refuse_memory(const TensorView& view, const std::string& name) {
  if (view.data == nullptr) fail(ErrorKind::kInput, name, "memory", "a null pointer");
  const size_t item = dtype_size(view.dtype);
  fail(ErrorKind::kInput, name, "memory at a multiple of " + std::to_string(item) + " bytes",
       std::to_string(reinterpret_cast<uintptr_t>(view.data) % item) + " beyond one");
}

void check_inputs(const Artifact& artifact, const Device& device, Span<TensorView> inputs) {
  Span<TensorRecord> records = artifact.inputs();
  if (inputs.size() != records.size()) {
    fail(ErrorKind::kInput, "execute", listed(artifact, artifact.inputs(), "inputs"),
         std::to_string(inputs.size()));
  }
  DeviceKind kind = device.kind();
  int index = device.index();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorView& input = inputs[i];
    DType dtype = static_cast<DType>(records[i].dtype);
    if (input.dtype != dtype) {
      fail(ErrorKind::kInput, named(artifact, records[i]),
           std::string("dtype ") + dtype_name(dtype), dtype_name(input.dtype));
    }
    if (is_misplaced(input)) refuse_memory(input, named(artifact, records[i]));
    if (input.device != kind || input.device_index != index) {
      fail(ErrorKind::kInput, named(artifact, records[i]), "memory of " + device.name(),
           "memory of " + device_name(input.device, input.device_index));
    }
  }
}

std::vector<int64_t> bind_symbols(const Artifact& artifact, Span<TensorView> inputs) {
  constexpr int64_t kUnbound = -1;
  std::vector<int64_t> values(artifact.symbols().size(), kUnbound);
  std::vector<size_t> binders(values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorRecord& record = artifact.inputs()[i];
    const Shape& shape = inputs[i].shape;
    Span<Slot> slots = artifact.dims(record.shape);
    if (shape.rank() != slots.size()) {
      fail(ErrorKind::kInput, named(artifact, record), "shape " + artifact.shape_text(record.shape),
           shape.text());
    }
    if (!shape.bytes(inputs[i].dtype)) {
      fail(ErrorKind::kInput, named(artifact, record), "a size in bytes that fits 63 bits",
           shape.text());
    }
    for (size_t axis = 0; axis < slots.size(); ++axis) {
      const SizeRecord& size = artifact.sizes()[slots[axis]];
      if (size.op != SizeOp::kSymbol) continue;
      const SymbolRecord& symbol = artifact.symbols()[size.a];
      int64_t value = shape[axis];
      if (value < symbol.minimum || value > symbol.maximum) {
        fail(ErrorKind::kInput, dim_named(artifact, record, axis),
             std::to_string(symbol.minimum) + " to " + std::to_string(symbol.maximum),
             std::to_string(value));
      }
      if (values[size.a] == kUnbound) {
        values[size.a] = value;
        binders[size.a] = i;
      } else if (values[size.a] != value) {
        fail(ErrorKind::kInput, dim_named(artifact, record, axis),
             std::to_string(values[size.a]) + " as in " +
                 named(artifact, artifact.inputs()[binders[size.a]]),
             std::to_string(value));
      }
    }
  }
  return values;
}

void check_dims(const Artifact& artifact, Span<TensorView> inputs,
                const std::vector<int64_t>& sizes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorRecord& record = artifact.inputs()[i];
    Span<Slot> slots = artifact.dims(record.shape);
    for (size_t axis = 0; axis < slots.size(); ++axis) {
      if (inputs[i].shape[axis] != sizes[slots[axis]]) {
        fail(ErrorKind::kInput, dim_named(artifact, record, axis),
             std::to_string(sizes[slots[axis]]), std::to_string(inputs[i].shape[axis]));
      }
    }
  }
}

}  // namespace heddle
