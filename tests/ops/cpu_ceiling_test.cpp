// SPDX-License-Identifier: Apache-2.0
#include "quire/cpu_ceiling.h"

#include <gtest/gtest.h>

#include "cpu/runtime/target.h"
#include "quire/error.h"

namespace quire {
namespace {

TEST(CpuCeiling, MeasuresTheBestTargetUnlessToldOtherwise) {
  const CpuCeiling best = measure_cpu_ceiling(1);
  EXPECT_TRUE(cpu::target_from_name(best.target).has_value()) << best.target;
  EXPECT_EQ(best.num_threads, 1);
  EXPECT_GT(best.read_gbs, 0.05);
  const CpuCeiling portable = measure_cpu_ceiling(1, "portable");
  EXPECT_EQ(portable.target, "portable");
  EXPECT_GT(portable.f32_gflops, 0.1);
  EXPECT_GT(portable.bf16_gflops, 0.1);
  EXPECT_GT(portable.int8_gops, 0.1);
  // Matrix instructions are many times faster; a probe of the wrong one would not be.
  if (best.target == "amx") {
    EXPECT_GT(best.bf16_gflops, 4.0 * best.f32_gflops);
    EXPECT_GT(best.int8_gops, 4.0 * best.f32_gflops);
  }
}

TEST(CpuCeiling, CountsTheThreads) {
  EXPECT_EQ(measure_cpu_ceiling(3, "portable").num_threads, 3);
}

TEST(CpuCeiling, RefusesThreadsBeyondTheLimit) {
  for (const int threads : {-1, 1'000'000}) {
    try {
      measure_cpu_ceiling(threads, "portable");
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.op(), "measure_cpu_ceiling");
      EXPECT_EQ(error.actual(), std::to_string(threads));
    }
  }
}

TEST(CpuCeiling, RefusesATargetThatIsNotThere) {
  try {
    measure_cpu_ceiling(1, "abacus");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.argument(), "target");
    EXPECT_NE(error.expected().find("portable"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quire
