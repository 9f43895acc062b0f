// SPDX-License-Identifier: Apache-2.0
// What the control groups of this process grant it of the processor. A container of two CPUs on a
// machine of ninety-six sees all of them in its affinity, and is stopped for most of each period if
// it starts as many threads.
#pragma once

#include <filesystem>
#include <optional>

namespace quire::cpu {

// The smallest quota on the way from this process's group to the root, in whole cores, rounded up;
// nothing where there is none. Version 2 (cpu.max) and version 1 (cpu.cfs_quota_us). Files are read
// below `root`: "/", or a copy of proc/self and of the groups' folders.
std::optional<int> cgroup_cores(const std::filesystem::path& root);

}  // namespace quire::cpu
