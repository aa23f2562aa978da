#pragma once

#include <string>
#include <vector>

#include "bindings.h"
#include "heddle/artifact.h"

/// What an artifact holds, as plain Python data that goes into JSON.

namespace heddle::bindings {

nb::dict provenance(const Artifact& artifact);
nb::list symbols(const Artifact& artifact);
nb::list inputs(const Artifact& artifact);
nb::list outputs(const Artifact& artifact);
nb::list weights(const Artifact& artifact);
nb::list programs(const Artifact& artifact);

/// For each program: its target and the architectures that every kernel of it has code for.
nb::list requirements(const Artifact& artifact);

/// All of the above.
nb::dict describe(const Artifact& artifact);

/// The Python class `TensorSpec`: the name, dtype and shape of an input or output.
struct TensorSpec {
  std::string name;
  std::string dtype;
  nb::tuple shape;   // numbers, and texts where they depend on symbols
  std::string text;  // "tokens: int32[batch, sequence]"
};

std::vector<TensorSpec> specs(const Artifact& artifact, Span<TensorRecord> records);

}  // namespace heddle::bindings
