#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

namespace heddle::bindings {

/// Runs `take`, which takes the GIL. Before Python 3.14 that ends a thread when the interpreter is
/// ending: its stack unwinds, through destructors of which some need the GIL and none may throw.
/// Such a thread stays here instead, as one does from 3.14 on, and the process ends without it.
template <class Take>
auto take_or_stay(Take take) noexcept {
  try {
    return take();
  } catch (...) {
    for (;;) ::pause();  // never left: the end of a thread may not be swallowed
  }
}

/// This thread has no GIL, for a scope.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil() {
    take_or_stay([this] { PyEval_RestoreThread(state_); });
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

/// This thread has the GIL, for a scope, whether it had it before or not.
class HeldGil {
 public:
  HeldGil() : state_(take_or_stay([] { return PyGILState_Ensure(); })) {}
  ~HeldGil() { PyGILState_Release(state_); }
  HeldGil(const HeldGil&) = delete;
  HeldGil& operator=(const HeldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace heddle::bindings
