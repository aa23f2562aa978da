#pragma once

#include <string>
#include <vector>

#include "heddle/program.h"

namespace heddle {

/// Whether a view has no memory, or some at no multiple of its element, which kernels count on.
bool is_misplaced(const TensorView& view);

/// Refuses such a view, which is called `name`.
[[noreturn]] void refuse_memory(const TensorView& view, const std::string& name);

/// `2 outputs (probabilities, mean)`, of which `what` is the second word.
std::string listed(const Artifact& artifact, Span<TensorRecord> tensors, const char* what);

/// Refuses inputs of another number, dtype or device; shapes are not looked at.
void check_inputs(const Artifact& artifact, const Device& device, Span<TensorView> inputs);

/// Refuses outputs of another number, dtype, shape or device than those of `plan`, or whose memory
/// is that of something else. `in_place` ascends, and no two share a byte.
void check_outputs(const Program& program, const Plan& plan, Span<TensorView> inputs,
                   Span<TensorView> outputs, const std::vector<InPlace>& in_place);

/// The value of each symbol, as the inputs' shapes bind it. Throws an input error that names the
/// input and the dim.
std::vector<int64_t> bind_symbols(const Artifact& artifact, Span<TensorView> inputs);

/// Checks the inputs' dimensions that are numbers or computed against `sizes`.
void check_dims(const Artifact& artifact, Span<TensorView> inputs,
                const std::vector<int64_t>& sizes);

/// Places the buffers and lays out the steps of init. Throws an artifact error.
Plan plan_init(const Artifact& artifact, const ProgramRecord& program);

/// Places the buffers and lays out the steps of main. Throws an input error.
Plan plan_main(const Artifact& artifact, const ProgramRecord& program, Span<TensorView> inputs,
               const std::vector<int64_t>& sizes);

/// How many instructions of init or of main, whichever are more, have a status word.
size_t most_checks(const Artifact& artifact, const ProgramRecord& program);

}  // namespace heddle
