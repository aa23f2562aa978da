#pragma once

#include "bindings.h"

/// Tensors in and out through DLPack (https://dmlc.github.io/dlpack), versions 0 and 1.

namespace heddle::bindings {

/// A tensor that came in a capsule. It is released with `owner`.
struct Imported {
  TensorView view;
  bool contiguous;
  Shape strides;  ///< In elements.
  bool read_only;
  std::shared_ptr<void> owner;
};

/// Takes over the tensor of an object with `__dlpack__`; a GPU's is ready in the order of `stream`.
/// Throws an input error for a device or a dtype that Heddle does not know.
Imported import_dlpack(nb::handle object, Stream stream);

/// A capsule that shares the memory of `self`, a Python `Buffer`.
nb::object export_dlpack(nb::handle self, nb::handle stream, nb::handle max_version,
                         nb::handle device, nb::handle copy);

nb::tuple dlpack_device(DeviceName name);

}  // namespace heddle::bindings
