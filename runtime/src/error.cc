#include "heddle/error.h"

namespace heddle {

const char* reason_name(ArtifactReason reason) {
  static constexpr const char* kNames[] = {"not_found", "not_an_artifact", "version", "truncated",
                                           "checksum",  "malformed",       "weights"};
  return kNames[static_cast<int>(reason)];
}

}  // namespace heddle
