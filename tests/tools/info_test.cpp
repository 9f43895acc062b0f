// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tools/case_text.h"
#include "tools/info/machine.h"
#include "tools/info/support_table.h"

namespace quire::tools {
namespace {

TEST(Machine, ReadsAnX86Cpuinfo) {
  const Machine machine = parse_cpuinfo(
      "processor\t: 0\nmodel name\t: Some CPU 9000\nflags\t\t: fpu avx2 fma nonsense "
      "avx512_bf16\n\n"
      "processor\t: 1\nmodel name\t: Another\n");
  EXPECT_EQ(machine.cpu, "Some CPU 9000");
  EXPECT_EQ(machine.features, (std::vector<std::string>{"avx2", "fma", "avx512_bf16"}));
}

TEST(Machine, ReadsAnArmCpuinfo) {
  const Machine machine =
      parse_cpuinfo("processor : 0\nFeatures : fp asimd asimddp i8mm bf16\nCPU part : 0xd40\n");
  EXPECT_EQ(machine.cpu, "Arm Neoverse V1");
  EXPECT_EQ(machine.features, (std::vector<std::string>{"asimd", "asimddp", "i8mm", "bf16"}));
}

TEST(Machine, IsDetected) {
  const Machine machine = detect_machine();
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.memory_bytes, std::int64_t{1} << 28);
}

TEST(SupportTable, AsksTheOps) {
  nlohmann::json rejected = small_attention();
  rejected["name"] = "rejected";
  rejected["softcap"] = -1.0;
  nlohmann::json model = small_attention();
  model["name"] = "model";
  model["tags"] = {"model"};
  const std::vector<SupportRow> rows =
      ask_support({parse_one(small_attention()), parse_one(rejected), parse_one(model)}, "cpu");
  ASSERT_EQ(rows.size(), 2u);  // model cases are not built for a table
  EXPECT_TRUE(rows[0].kernel.ends_with("flash_attention"));
  EXPECT_EQ(rows[1].kernel, "");
  EXPECT_NE(rows[1].refusals.front().find("softcap"), std::string::npos);
  const std::vector<OpSupport> ops = summarise(rows);
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0].problems_by_kernel.at(""), 1);
}

}  // namespace
}  // namespace quire::tools
