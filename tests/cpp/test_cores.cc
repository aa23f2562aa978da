#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cores.h"
#include "support.h"

using namespace heddle;

namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

/// What is said of a system with these files.
std::optional<int> quota(const Files& files) {
  const auto root = std::filesystem::temp_directory_path() / "heddle_test_cores";
  std::filesystem::remove_all(root);
  for (const auto& [name, text] : files) {
    const std::filesystem::path path = root.string() + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  const std::optional<int> found = cores_by_quota(root.string());
  std::filesystem::remove_all(root);
  return found;
}

}  // namespace

TEST_CASE("cores: those of the affinity") { CHECK(allowed_cores().size() >= 1); }

TEST_CASE("cores: the quota of control groups, version 2") {
  const std::string groups = "/proc/self/cgroup", mount = "/sys/fs/cgroup";
  CHECK_FALSE(quota({}));
  CHECK_FALSE(quota({{groups, "0::/\n"}}));
  CHECK_FALSE(quota({{groups, "0::/\n"}, {mount + "/cpu.max", "max 100000\n"}}));
  CHECK(quota({{groups, "0::/\n"}, {mount + "/cpu.max", "150000 100000\n"}}) == 2);
  CHECK(quota({{groups, "0::/\n"}, {mount + "/cpu.max", "1000 100000\n"}}) == 1);
  CHECK(quota({{groups, "0::/../x\n"}, {mount + "/cpu.max", "300000 100000\n"}}) == 3);
  const Files nested = {{groups, "0::/a/b\n"},
                        {mount + "/a/b/cpu.max", "800000 100000\n"},
                        {mount + "/a/cpu.max", "400000 100000\n"}};
  CHECK(quota(nested) == 4);
}

TEST_CASE("cores: the quota of control groups, version 1") {
  const std::string groups = "5:cpuset:/x\n4:cpu,cpuacct:/docker/1\n";
  const std::string folder = "/sys/fs/cgroup/cpu";
  auto with = [&](const std::string& place, const std::string& value) {
    return quota({{"/proc/self/cgroup", groups},
                  {folder + place + "/cpu.cfs_quota_us", value},
                  {folder + place + "/cpu.cfs_period_us", "100000\n"}});
  };
  CHECK(with("/docker/1", "250000\n") == 3);
  CHECK(with("", "250000\n") == 3);  // as a container sees its own
  CHECK_FALSE(with("/docker/1", "-1\n"));
}
