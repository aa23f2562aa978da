#pragma once

#include <memory>
#include <utility>

#include "bindings.h"
#include "heddle/model.h"

namespace heddle::bindings {

/// The Python class `Model`. Its end waits for the model's work, other Python threads do not.
struct ModelObject {
  std::shared_ptr<const Model> model;

  ModelObject(std::shared_ptr<const Model> loaded) : model(std::move(loaded)) {}
  ModelObject(ModelObject&&) = default;
  ~ModelObject() {
    if (model == nullptr) return;
    const ReleasedGil released;
    model.reset();
  }

  const Artifact& artifact() const { return model->program().artifact(); }
};

void bind_session(nb::module_& module);

}  // namespace heddle::bindings
