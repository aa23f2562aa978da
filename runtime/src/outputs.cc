#include <algorithm>
#include <string>

#include "heddle/error.h"
#include "plan.h"

namespace heddle {
namespace {

uintptr_t begin_of(const TensorView& view) { return reinterpret_cast<uintptr_t>(view.data); }

uintptr_t end_of(const TensorView& view) {
  return begin_of(view) + static_cast<uintptr_t>(*view.shape.bytes(view.dtype));
}

/// Whether two tensors share a byte.
bool overlap(const TensorView& a, const TensorView& b) {
  const uintptr_t begin_a = begin_of(a), begin_b = begin_of(b), end_a = end_of(a),
                  end_b = end_of(b);
  return begin_a < end_a && begin_b < end_b && begin_a < end_b && begin_b < end_a;
}

/// What shares a byte with a tensor, or null.
const InPlace* find(const std::vector<InPlace>& in_place, const TensorView& view) {
  const uintptr_t begin = begin_of(view), end = end_of(view);
  auto found =
      std::upper_bound(in_place.begin(), in_place.end(), begin,
                       [](uintptr_t address, const InPlace& row) { return address < row.end; });
  return found != in_place.end() && begin < end && found->begin < end ? &*found : nullptr;
}

/// Whether an output may be the very memory of an input.
bool updates(const Plan& plan, size_t input, size_t output) {
  return std::any_of(plan.updates.begin(), plan.updates.end(), [&](const Update& update) {
    return update.input == input && update.output == output;
  });
}

}  // namespace

void check_outputs(const Program& program, const Plan& plan, Span<TensorView> inputs,
                   Span<TensorView> outputs, const std::vector<InPlace>& in_place) {
  const Artifact& artifact = program.artifact();
  if (outputs.size() != plan.outputs.size()) {
    fail(ErrorKind::kInput, "execute", listed(artifact, artifact.outputs(), "outputs"),
         std::to_string(outputs.size()));
  }
  auto named = [&](size_t i) {
    return "output '" + std::string(artifact.text(artifact.outputs()[i].name)) + "'";
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorView& output = outputs[i];
    DType dtype = static_cast<DType>(artifact.outputs()[i].dtype);
    if (output.dtype != dtype) {
      fail(ErrorKind::kInput, named(i), std::string("dtype ") + dtype_name(dtype),
           dtype_name(output.dtype));
    }
    if (output.shape != plan.outputs[i]) {
      fail(ErrorKind::kInput, named(i), "shape " + plan.outputs[i].text(), output.shape.text());
    }
    if (output.device != program.device()->kind() ||
        output.device_index != program.device()->index()) {
      fail(ErrorKind::kInput, named(i), "memory of " + program.device()->name(),
           "memory of another device");
    }
    if (is_misplaced(output)) refuse_memory(output, named(i));
    for (size_t k = 0; k < inputs.size(); ++k) {
      bool same = output.data == inputs[k].data && updates(plan, k, i);
      if (!same && overlap(output, inputs[k])) {
        fail(ErrorKind::kInput, named(i), "memory of its own",
             "memory of input '" + std::string(artifact.text(artifact.inputs()[k].name)) + "'");
      }
    }
    if (const InPlace* held = find(in_place, output)) {
      fail(ErrorKind::kInput, named(i), "memory of its own", "memory of " + held->name);
    }
    for (size_t k = 0; k < i; ++k) {
      if (overlap(output, outputs[k])) {
        fail(ErrorKind::kInput, named(i), "memory of its own", "memory of " + named(k));
      }
    }
  }
}

}  // namespace heddle
