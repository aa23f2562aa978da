#pragma once

#include "bindings.h"

namespace heddle::bindings {

/// The stream of `device` that a Python object is: a `Stream`, an object with `__cuda_stream__`,
/// `cuda_stream` (torch) or `ptr` (CuPy), or the number of a `CUstream`. Throws an input error for
/// anything else, or a stream that is not of `device`.
Stream stream_from(nb::handle object, Device& device);

}  // namespace heddle::bindings
