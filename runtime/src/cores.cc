#include "cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

namespace heddle {
namespace {

/// Cores by the limit of one group, or nothing. A limit is `quota` microseconds of every `period`.
std::optional<double> limit_of(const std::string& folder, bool unified) {
  double quota = 0, period = 0;
  if (unified) {  // "max 100000" where there is none
    std::ifstream(folder + "/cpu.max") >> quota >> period;
  } else {  // -1 where there is none
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  if (quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

/// Whether `name` is in a list such as `"cpu,cpuacct"`.
bool has(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) {
    cores.resize(std::max(1u, std::thread::hardware_concurrency()));
    std::iota(cores.begin(), cores.end(), 0);
  }
  return cores;
}

// The files: "Control Group v2", and "CFS Bandwidth Control" for version 1, of Linux's
// documentation.
std::optional<int> cores_by_quota(const std::string& root) {
  std::optional<double> least;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(fields, number, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    const bool unified = number == "0" && controllers.empty();
    if (!unified && !has(controllers, "cpu")) continue;
    // All groups around it count. In a container the path may lead out of what is seen here.
    if (path.find("..") != std::string::npos) path.clear();
    const std::string mount = root + "/sys/fs/cgroup" + (unified ? "" : "/cpu");
    for (;; path.erase(path.rfind('/'))) {
      if (const auto limit = limit_of(mount + path, unified)) {
        least = std::min(least.value_or(*limit), *limit);
      }
      if (path.find('/') == std::string::npos) break;
    }
  }
  if (!least) return std::nullopt;
  return static_cast<int>(std::min(std::ceil(*least), 1e6));
}

}  // namespace heddle
