#include "tensors.h"

#include <string>

namespace heddle::bindings {
namespace {

// The same error, with the name of the tensor where it has one.
[[noreturn]] void refuse(const char* role, size_t index, Span<TensorRecord> records,
                         const Artifact& artifact, const Error& error) {
  if (error.kind() != ErrorKind::kInput) throw error;
  const std::string name = index < records.size()
                               ? "'" + std::string(artifact.text(records[index].name)) + "'"
                               : std::to_string(index);
  throw Error(ErrorKind::kInput, std::string(role) + " " + name + ": " + error.what());
}

}  // namespace

void Tensors::take(const ModelObject& self, PyObject* object, size_t index, Stream stream) {
  const Span<TensorRecord> records = self.artifact().inputs();
  const auto wanted =
      index < records.size() ? static_cast<DType>(records[index].dtype) : DType::kFloat32;
  try {
    arguments_[index].take(object, wanted, stream);
  } catch (const Error& error) {
    refuse("input", index, records, self.artifact(), error);
  }
  views_[index] = arguments_[index].view();
}

void Tensors::take_out(const ModelObject& self, PyObject* object, size_t index, Stream stream) {
  try {
    arguments_[index].take(object, std::nullopt, stream);
    if (!arguments_[index].dense()) {
      throw Error(ErrorKind::kInput,
                  "wanted dense, row-major and aligned memory, got a view that is not");
    }
    if (!arguments_[index].writable()) {
      throw Error(ErrorKind::kInput, "wanted writable memory, got read-only memory");
    }
  } catch (const Error& error) {
    refuse("output", index, self.artifact().outputs(), self.artifact(), error);
  }
  views_[index] = arguments_[index].view();
}

void Tensors::settle(const Program& program) {
  const std::shared_ptr<Device>& device = program.device();
  bool settled = true;
  for (size_t i = 0; i < views_.size(); ++i) {
    if (arguments_[i].usable_on(*device)) continue;
    settled = false;
    views_[i] = arguments_[i].stand_in(*device);
  }
  if (settled) return;
  program.plan(views_);
  for (size_t i = 0; i < views_.size(); ++i) {
    arguments_[i].move_to(device);
    views_[i] = arguments_[i].view();
  }
}

void Tensors::release_producers() const {
  for (size_t i = 0; i < views_.size(); ++i) arguments_[i].release_producer();
}

}  // namespace heddle::bindings
