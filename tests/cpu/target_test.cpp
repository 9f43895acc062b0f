// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/target.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cpu/runtime/probe.h"
#include "quire/error.h"

namespace quire::cpu {
namespace {

constexpr Target kAll[] = {Target::portable, Target::avx2, Target::avx512_vnni, Target::avx512,
                           Target::amx,      Target::neon, Target::neon_bf16};

class ForcedTarget {
 public:
  explicit ForcedTarget(const char* name) { setenv("QUIRE_CPU_TARGET", name, 1); }
  ~ForcedTarget() { unsetenv("QUIRE_CPU_TARGET"); }
};

TEST(Target, NamesRoundTrip) {
  for (const Target target : kAll) EXPECT_EQ(target_from_name(name(target)), target);
  EXPECT_EQ(target_from_name("sse"), std::nullopt);
}

TEST(Target, ThePortableOneIsCompiledLastAndRuns) {
  EXPECT_EQ(compiled_targets().back(), Target::portable);
  EXPECT_EQ(why_not(Target::portable), "");
}

TEST(Target, TheOtherArchitecturesAreNotCompiled) {
#if defined(__x86_64__)
  EXPECT_EQ(why_not(Target::neon), "not compiled in this build");
#else
  EXPECT_EQ(why_not(Target::avx2), "not compiled in this build");
#endif
}

TEST(Target, ForcingOneRefusesTheOthersInWords) {
  const ForcedTarget forced("portable");
  EXPECT_EQ(why_not(Target::portable), "");
  for (const Target target : compiled_targets()) {
    if (target == Target::portable) continue;
    EXPECT_NE(why_not(target), "") << name(target);
  }
}

TEST(Target, AnEmptyChoiceForcesNothing) {
  const ForcedTarget forced("");
  EXPECT_EQ(why_not(Target::portable), "");
}

// "sse" is no target, the other two are those of another architecture and, nearly everywhere, of another machine.
TEST(Target, AChoiceThatDoesNotRunHereIsAnErrorThatNamesThoseThatDo) {
  for (const char* name : {"sse", "AVX2", "neon", "amx"}) {
    const std::optional<Target> target = target_from_name(name);
    if (target.has_value() && why_not(*target).empty()) continue;
    const ForcedTarget forced(name);
    try {
      static_cast<void>(why_not(Target::portable));
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.argument(), "QUIRE_CPU_TARGET");
      EXPECT_EQ(error.actual(), name);
      EXPECT_NE(error.expected().find("portable"), std::string::npos) << error.what();
    }
  }
}

TEST(Target, ProbesFindSomeSpeed) {
  for (const Target target : compiled_targets()) {
    if (!why_not(target).empty()) continue;
    EXPECT_GT(probe_gflops(target, DType::f32, 1), 0.1) << name(target);
    EXPECT_GT(probe_gflops(target, DType::bf16, 1), 0.1) << name(target);
    EXPECT_GT(probe_gflops(target, DType::i8, 1), 0.1) << name(target);
  }
  EXPECT_GT(probe_read_gbs(1), 0.05);
}

}  // namespace
}  // namespace quire::cpu
