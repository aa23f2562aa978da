#include <algorithm>
#include <string>

#include "heddle/error.h"
#include "plan.h"

namespace heddle {
namespace {

[[noreturn]] void fail(const std::string& where, const std::string& wanted,
                       const std::string& got) {
  throw Error(ErrorKind::kInput, where + ": wanted " + wanted + ", got " + got);
}

/// Whether two tensors share a byte.
bool overlap(const TensorView& a, const TensorView& b) {
  auto begin_a = reinterpret_cast<uintptr_t>(a.data), begin_b = reinterpret_cast<uintptr_t>(b.data);
  auto size_a = static_cast<uintptr_t>(*a.shape.bytes(a.dtype));
  auto size_b = static_cast<uintptr_t>(*b.shape.bytes(b.dtype));
  return size_a > 0 && size_b > 0 && begin_a < begin_b + size_b && begin_b < begin_a + size_a;
}

/// Whether an output may be the very memory of an input.
bool updates(const Plan& plan, size_t input, size_t output) {
  return std::any_of(plan.updates.begin(), plan.updates.end(), [&](const Update& update) {
    return update.input == input && update.output == output;
  });
}

}  // namespace

void check_outputs(const Program& program, const Plan& plan, Span<TensorView> inputs,
                   Span<TensorView> outputs) {
  const Artifact& artifact = program.artifact();
  if (outputs.size() != plan.outputs.size()) {
    fail("execute", std::to_string(plan.outputs.size()) + " outputs",
         std::to_string(outputs.size()));
  }
  auto named = [&](size_t i) {
    return "output '" + std::string(artifact.text(artifact.outputs()[i].name)) + "'";
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorView& output = outputs[i];
    DType dtype = static_cast<DType>(artifact.outputs()[i].dtype);
    if (output.dtype != dtype) {
      fail(named(i), std::string("dtype ") + dtype_name(dtype), dtype_name(output.dtype));
    }
    if (output.shape != plan.outputs[i]) {
      fail(named(i), "shape " + plan.outputs[i].text(), output.shape.text());
    }
    if (output.device != program.device()->kind() ||
        output.device_index != program.device()->index()) {
      fail(named(i), "memory of " + program.device()->name(), "memory of another device");
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      bool same = output.data == inputs[k].data && updates(plan, k, i);
      if (!same && overlap(output, inputs[k])) {
        fail(named(i), "memory of its own",
             "memory of input '" + std::string(artifact.text(artifact.inputs()[k].name)) + "'");
      }
    }
    for (size_t k = 0; k < i; ++k) {
      if (overlap(output, outputs[k])) fail(named(i), "memory of its own", "memory of " + named(k));
    }
  }
}

}  // namespace heddle
