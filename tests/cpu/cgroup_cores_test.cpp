// SPDX-License-Identifier: Apache-2.0
// Files as the kernel shows them, in a folder of the test's own.
#include "cpu/runtime/cgroup_cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace quire::cpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMountV2 =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kMountV1 =
    "33 25 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 25 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";

class CgroupCoresTest : public testing::Test {
 protected:
  CgroupCoresTest()
      : root(fs::temp_directory_path() / ("quire_cgroup_" + std::to_string(getpid()))) {
    write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
  }
  ~CgroupCoresTest() override { fs::remove_all(root); }

  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  }
  void use_v2(const std::string& group) const {
    write("proc/self/mountinfo", kMountV2);
    write("proc/self/cgroup", "0::" + group + "\n");
  }
  void use_v1(const std::string& group) const {
    write("proc/self/mountinfo", kMountV1);
    write("proc/self/cgroup",
          "5:memory:/elsewhere\n4:cpu,cpuacct:" + group + "\n1:name=systemd:/\n");
  }

  const fs::path root;
};

TEST_F(CgroupCoresTest, NoGroupsNoLimit) {
  EXPECT_EQ(cgroup_cores(root), std::nullopt);
  EXPECT_EQ(cgroup_cores(root / "missing"), std::nullopt);
}

TEST_F(CgroupCoresTest, V2QuotaOfTheGroupItself) {
  use_v2("/box");
  EXPECT_EQ(cgroup_cores(root), std::nullopt);
  write("sys/fs/cgroup/box/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_cores(root), 2);
  write("sys/fs/cgroup/box/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cores(root), std::nullopt);
}

TEST_F(CgroupCoresTest, PartsOfACoreCountAsOne) {
  use_v2("/box");
  write("sys/fs/cgroup/box/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_cores(root), 2);
  write("sys/fs/cgroup/box/cpu.max", "1000 100000\n");
  EXPECT_EQ(cgroup_cores(root), 1);
}

TEST_F(CgroupCoresTest, V2TheSmallestQuotaOnTheWayUp) {
  use_v2("/slice/pod/box");
  write("sys/fs/cgroup/slice/cpu.max", "600000 100000\n");
  write("sys/fs/cgroup/slice/pod/cpu.max", "150000 50000\n");
  write("sys/fs/cgroup/slice/pod/box/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cores(root), 3);
  write("sys/fs/cgroup/slice/cpu.max", "100000 100000\n");
  EXPECT_EQ(cgroup_cores(root), 1);
}

// In a namespace of its own a container is its root, whose files are the mount's.
TEST_F(CgroupCoresTest, V2InsideANamespace) {
  use_v2("/");
  write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cores(root), 4);
  use_v2("/../../outside");
  EXPECT_EQ(cgroup_cores(root), 4);
}

TEST_F(CgroupCoresTest, V1QuotaAndPeriodAreTwoFiles) {
  use_v1("/pod/box");
  const fs::path pod = "sys/fs/cgroup/cpu,cpuacct/pod";
  write(pod / "box/cpu.cfs_quota_us", "-1\n");
  write(pod / "box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cores(root), std::nullopt);
  write(pod / "cpu.cfs_quota_us", "250000\n");
  write(pod / "cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(cgroup_cores(root), 5);
  write(pod / "box/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cgroup_cores(root), 3);
}

// Without a namespace it is told the host's name of its group, and sees that group as the mount.
TEST_F(CgroupCoresTest, V1WhoseMountIsTheGroup) {
  use_v1("/docker/1234");
  write("proc/self/mountinfo",
        "34 25 0:31 /docker/1234 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "700000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cores(root), 7);
}

TEST_F(CgroupCoresTest, BothVersionsAtOnce) {
  std::string mounts = kMountV1;
  mounts += "40 25 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  write("proc/self/mountinfo", mounts);
  write("proc/self/cgroup", "4:cpu,cpuacct:/\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "600000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cores(root), 6);
  write("sys/fs/cgroup/unified/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_cores(root), 2);
}

TEST_F(CgroupCoresTest, WhatIsNoQuotaIsNone) {
  use_v2("/box");
  for (const char* text : {"", "\n", "x 100000", "100000", "100000 0", "0 100000", "-5 100000",
                           "99999999999999999999999 100000", "100000 -1"}) {
    write("sys/fs/cgroup/box/cpu.max", text);
    EXPECT_EQ(cgroup_cores(root), std::nullopt) << text;
  }
  write("sys/fs/cgroup/box/cpu.max", "9000000000000000000 1\n");
  EXPECT_EQ(cgroup_cores(root), 2147483647);
  for (const char* text : {"", "0", "0:", "0::", "::::", "x::/box"}) {
    write("proc/self/cgroup", text);
    static_cast<void>(cgroup_cores(root));
  }
  for (const char* text : {"", "30 23 0:26 /", "30 23 0:26 / / rw -", "- - - - - - -"}) {
    write("proc/self/mountinfo", text);
    EXPECT_EQ(cgroup_cores(root), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace quire::cpu
