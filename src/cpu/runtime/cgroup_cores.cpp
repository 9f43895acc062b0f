// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/cgroup_cores.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace quire::cpu {
namespace {

namespace fs = std::filesystem;

enum class Version : std::uint8_t { v1, v2 };

// Where a hierarchy can be seen: the group `root` of it is the folder `point`.
struct Mount {
  fs::path root;
  fs::path point;
};

bool has_word(const std::string& list, const std::string& word) {
  std::istringstream words(list);
  for (std::string found; std::getline(words, found, ',');) {
    if (found == word) return true;
  }
  return false;
}

// "36 35 98:0 <root> <point> <options> [<optional fields>] - <type> <source> <super options>"
std::optional<Mount> parse_mount(const std::string& line, Version version) {
  std::istringstream fields(line);
  std::string skipped;
  std::string root;
  std::string point;
  fields >> skipped >> skipped >> skipped >> root >> point;
  while (fields >> skipped && skipped != "-") {
  }
  std::string type;
  std::string source;
  std::string options;
  fields >> type >> source >> options;
  if (!fields) return std::nullopt;
  const bool fits =
      version == Version::v2 ? type == "cgroup2" : type == "cgroup" && has_word(options, "cpu");
  if (!fits) return std::nullopt;
  return Mount{.root = root, .point = point};
}

// "0::<group>" is version 2, "4:cpu,cpuacct:<group>" version 1.
std::optional<fs::path> parse_group(const std::string& line, Version version) {
  const std::size_t first = line.find(':');
  const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos) return std::nullopt;
  const std::string controllers = line.substr(first + 1, second - first - 1);
  const bool fits = version == Version::v2 ? line.substr(0, first) == "0" && controllers.empty()
                                           : has_word(controllers, "cpu");
  if (!fits) return std::nullopt;
  return fs::path(line.substr(second + 1));
}

template <typename Result>
std::optional<Result> first_line(const fs::path& file,
                                 std::optional<Result> (*parse)(const std::string&, Version),
                                 Version version) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (auto result = parse(line, version)) return result;
  }
  return std::nullopt;
}

// Runtime in units of the period: quota / period. Nothing for "max", -1 and whatever is no number.
std::optional<double> share(std::istream& quota_text, std::istream& period_text) {
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (!(quota_text >> quota) || !(period_text >> period)) return std::nullopt;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<double>(quota) / static_cast<double>(period);
}

std::optional<double> quota_of(const fs::path& folder, Version version) {
  if (version == Version::v2) {
    std::ifstream both(folder / "cpu.max");
    return share(both, both);
  }
  std::ifstream quota(folder / "cpu.cfs_quota_us");
  std::ifstream period(folder / "cpu.cfs_period_us");
  return share(quota, period);
}

// The folders of the group and of those it is in, as far as they can be seen from here.
std::vector<fs::path> folders_of(const fs::path& group, const Mount& mount) {
  // A container may be told the host's name of its group and see it as the mount's root.
  fs::path relative = group.lexically_relative(mount.root);
  if (relative.empty() || *relative.begin() == "..") relative = ".";
  std::vector<fs::path> folders = {mount.point};
  for (const fs::path& part : relative) {
    if (part != ".") folders.push_back(folders.back() / part);
  }
  return folders;
}

std::optional<double> smallest_quota(const fs::path& root, Version version) {
  const auto mount = first_line<Mount>(root / "proc/self/mountinfo", parse_mount, version);
  const auto group = first_line<fs::path>(root / "proc/self/cgroup", parse_group, version);
  if (!mount || !group) return std::nullopt;
  std::optional<double> smallest;
  for (const fs::path& folder : folders_of(*group, *mount)) {
    const auto quota = quota_of(root / folder.relative_path(), version);
    if (quota) smallest = std::min(*quota, smallest.value_or(*quota));
  }
  return smallest;
}

}  // namespace

std::optional<int> cgroup_cores(const fs::path& root) {
  std::optional<double> smallest;
  for (const Version version : {Version::v1, Version::v2}) {
    const auto quota = smallest_quota(root, version);
    if (quota) smallest = std::min(*quota, smallest.value_or(*quota));
  }
  if (!smallest) return std::nullopt;
  constexpr double kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::ceil(std::min(*smallest, kMost)));
}

}  // namespace quire::cpu
