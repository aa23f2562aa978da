#pragma once

#include <memory>
#include <vector>

#include "argument.h"
#include "session.h"

namespace heddle::bindings {

/// The inputs or the outputs of one call.
class Tensors {
 public:
  explicit Tensors(size_t count) : arguments_(new Argument[count]), views_(count) {}

  /// Takes an input of a call of `self` on `stream`. Throws an input error that names it.
  void take(const ModelObject& self, PyObject* object, size_t index, Stream stream = {});

  /// Takes an output: dense memory that may be written. Throws an input error that names it.
  void take_out(const ModelObject& self, PyObject* object, size_t index, Stream stream = {});

  /// Brings inputs that the program cannot read to where it can, once their shapes are known to be
  /// wanted: what is refused is not copied. Throws what the plan throws.
  void settle(const Program& program);

  /// Lets the streams from which tensors came go on behind what was done with them.
  void release_producers() const;

  Span<TensorView> views() const { return views_; }

 private:
  std::unique_ptr<Argument[]> arguments_;
  std::vector<TensorView> views_;
};

}  // namespace heddle::bindings
