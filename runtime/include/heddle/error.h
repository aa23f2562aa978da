#pragma once

#include <memory>
#include <stdexcept>
#include <string>

namespace heddle {

/// Who is at fault; one Python class in `heddle.runtime.errors` for each.
enum class ErrorKind {
  kArtifact,  ///< An artifact or weights file is missing, corrupt or of another format.
  kDevice,    ///< A device, driver or instruction set is not there, or a device failed.
  kInput,     ///< What was passed to `execute` has the wrong count, shape, dtype or values.
};

/// Why an artifact or weights file was refused; meaningful for `ErrorKind::kArtifact`.
enum class ArtifactReason {
  kNotFound,
  kNotAnArtifact,
  kVersion,
  kTruncated,
  kChecksum,
  kMalformed,
  kWeights,
};

/// The name of a reason as Python spells it: `"not_found"`.
const char* reason_name(ArtifactReason reason);

/// Every failure of the runtime. The message says where, what was wanted and what was found.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Error(ArtifactReason reason, const std::string& message)
      : std::runtime_error(message), kind_(ErrorKind::kArtifact), reason_(reason) {}

  ErrorKind kind() const { return kind_; }
  ArtifactReason reason() const { return reason_; }

 private:
  ErrorKind kind_;
  ArtifactReason reason_ = ArtifactReason::kMalformed;
};

/// Throws an error whose message says what was wanted at a place, and what was found.
template <class Fault>
[[noreturn]] void fail(Fault fault, const std::string& where, const std::string& wanted,
                       const std::string& got) {
  throw Error(fault, where + ": wanted " + wanted + ", got " + got);
}

/// The same handle. Throws an input error for one that is null, as one is that was moved from.
template <class T>
std::shared_ptr<T> not_null(std::shared_ptr<T> handle, const char* where) {
  if (handle != nullptr) return handle;
  throw Error(ErrorKind::kInput,
              std::string(where) + ": wanted one, got a null pointer (was it moved from?)");
}

}  // namespace heddle
