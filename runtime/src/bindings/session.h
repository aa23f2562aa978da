#pragma once

#include <memory>

#include "bindings.h"
#include "heddle/model.h"

namespace heddle::bindings {

/// The Python class `Model`.
struct ModelObject {
  std::shared_ptr<const Model> model;

  const Artifact& artifact() const { return model->program().artifact(); }
};

void bind_session(nb::module_& module);

}  // namespace heddle::bindings
