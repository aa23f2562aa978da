#pragma once

#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// The numbers of the cores that this process may use, at least one.
std::vector<int> allowed_cores();

/// The cores whose time the control groups of this process allow it, rounded up; nothing where they
/// set no limit. `root` is in front of the system's paths.
std::optional<int> cores_by_quota(const std::string& root = "");

}  // namespace heddle
