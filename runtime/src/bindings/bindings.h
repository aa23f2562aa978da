#pragma once

#include <nanobind/nanobind.h>

#include "heddle/error.h"

/// The bindings convert; they decide nothing. One topic, one file, one of these functions.

namespace heddle::bindings {

namespace nb = nanobind;

/// Sets the Python error that `error` is.
void raise(const Error& error);

void bind_errors(nb::module_& module);

}  // namespace heddle::bindings
