// SPDX-License-Identifier: Apache-2.0
// Ops give the same bits however the caller has set the floating-point unit, at any thread count, and leave
// the caller's modes as they found them.
#include "cpu/runtime/float_environment.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <functional>
#include <stdexcept>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "cpu/attention_target.h"
#include "cpu/runtime/thread_pool.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "quire/ops/merge_states.h"
#include "support/attention_inputs.h"

namespace quire::cpu {
namespace {

using test::HostTensor;

void flush_subnormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
#elif defined(__aarch64__)
  constexpr std::uint64_t kFlushToZero = 1u << 24;
  __asm__ volatile("msr fpcr, %0" : : "r"(float_modes() | kFlushToZero) : "memory");
#endif
}

struct Mode {
  const char* name;
  void (*set)();
};

constexpr Mode kModes[] = {{"flush to zero", flush_subnormals},
                           {"upward", [] { std::fesetround(FE_UPWARD); }},
                           {"toward zero", [] { std::fesetround(FE_TOWARDZERO); }},
                           {"both", [] {
                              std::fesetround(FE_DOWNWARD);
                              flush_subnormals();
                            }}};

// The modes of this thread as a caller might have them, until the end of the scope.
class CallersModes {
 public:
  explicit CallersModes(const Mode& mode) {
    std::fegetenv(&before_);
    mode.set();
    modes_ = float_modes();
  }
  ~CallersModes() { std::fesetenv(&before_); }
  CallersModes(const CallersModes&) = delete;
  CallersModes& operator=(const CallersModes&) = delete;

  bool are_kept() const { return float_modes() == modes_; }

 private:
  std::fenv_t before_{};
  std::uint64_t modes_ = 0;
};

TEST(FloatEnvironment, HoldsTheDefaultsWhileItLives) {
  const std::uint64_t defaults = float_modes();
  for (const Mode& mode : kModes) {
    const CallersModes callers(mode);
    ASSERT_NE(float_modes(), defaults) << mode.name;
    {
      const FloatEnvironment environment;
      EXPECT_EQ(float_modes(), defaults) << mode.name;
    }
    EXPECT_TRUE(callers.are_kept()) << mode.name;
  }
}

TEST(FloatEnvironment, HoldsOnEveryWorkerAndAfterAnException) {
  const std::uint64_t defaults = float_modes();
  for (const Mode& mode : kModes) {
    const CallersModes callers(mode);
    std::atomic<int> others = 0;
    parallel_for(64, 3, [&](std::int64_t, int) { others += float_modes() == defaults ? 0 : 1; });
    EXPECT_EQ(others, 0) << mode.name;
    EXPECT_TRUE(callers.are_kept()) << mode.name;
    EXPECT_THROW(parallel_for(64, 3, [](std::int64_t, int) { throw std::runtime_error("item"); }),
                 std::runtime_error);
    EXPECT_TRUE(callers.are_kept()) << mode.name;
  }
}

// Threads of the caller's, each with its own modes.
TEST(FloatEnvironment, HoldsOnTheCallersThreads) {
  const std::uint64_t defaults = float_modes();
  Context context;
  context.num_threads = 3;
  context.parallel_for.run = [](void*, std::int64_t count, void (*task)(void*, std::int64_t),
                                void* data) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::thread([=] {
        flush_subnormals();
        task(data, i);
      }).join();
    }
  };
  std::atomic<int> others = 0;
  parallel_for(64, context,
               [&](std::int64_t, int) { others += float_modes() == defaults ? 0 : 1; });
  EXPECT_EQ(others, 0);
}

class OpsInAnyMode : public RowTarget {
 protected:
  using Run = std::function<std::vector<std::byte>(const Context&)>;

  void expect_same(const char* op, const Run& run) const {
    const std::vector<std::byte> expected = run(context(1));
    for (const Mode& mode : kModes) {
      for (const int num_threads : kThreadCounts) {
        const CallersModes callers(mode);
        const std::vector<std::byte> actual = run(context(num_threads));
        EXPECT_TRUE(callers.are_kept()) << op << " " << mode.name;
        EXPECT_EQ(actual, expected) << op << " " << mode.name << " " << num_threads << " threads";
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, OpsInAnyMode, kEveryTarget, target_name);

// Values below what f32 holds normally.
TEST_P(OpsInAnyMode, FlashAttention) {
  test::FlashInputs inputs({.cache_lengths = {0, 30},
                            .new_tokens = {20, 1},
                            .row_format = RowFormat::uniform(DType::f32, 16)},
                           4);
  const KvLayerView values = inputs.cache.view().value(test::kTestLayer);
  for (std::int64_t token = 0; token < 20; ++token) {
    for (std::int32_t column = 0; column < 16; ++column) {
      for (const std::int64_t head : {0, 1}) values.store(0, head, token, column, 3e-40 * column);
    }
  }
  expect_same("flash_attention", [&](const Context& context) {
    flash_attention(inputs.args(), context);
    return read_results(inputs.out, inputs.lse).bits;
  });
}

TEST_P(OpsInAnyMode, MlaDecode) {
  const test::MlaShape shape{.heads = 5, .nope = 11, .rope = 6, .latent = 37, .value = 13};
  test::MlaInputs original({.cache_lengths = {9, 0, 40}, .new_tokens = {1, 8, 3}}, shape);
  original.kv_b_proj = HostTensor::random(DType::f32, {5 * (11 + 13), 37}, 14,
                                          1e-39);  // values, and q', of this size
  expect_same("mla_decode", [&](const Context& context) {
    test::MlaInputs inputs = original;
    MlaDecodeArgs args = inputs.decode_args();
    args.scale = 0.25;  // not computed in the caller's mode
    mla_decode(args, context);
    return read_results(inputs.out, inputs.lse).bits;
  });
}

TEST_P(OpsInAnyMode, FusedQkvMatmul) {
  const HostTensor x = HostTensor::random(DType::f32, {40, 70}, 1, 1e-20);
  const HostTensor weight = HostTensor::random(DType::f32, {96, 70}, 2, 1e-19);
  const test::TestCache cache(
      {.cache_lengths = {3}, .new_tokens = {40}, .row_format = RowFormat::uniform(DType::f32, 16)});
  const HostTensor out(DType::f32, {40, 32});
  expect_same("fused_qkv_matmul", [&](const Context& context) {
    fused_qkv_matmul({.x = x.view(),
                      .row_offsets = cache.row_offsets(),
                      .weight = Weight{.data = weight.view()},
                      .cache = cache.view(),
                      .layer = test::kTestLayer,
                      .out = out.view()},
                     context);
    std::vector<std::byte> bits = out.bytes();
    bits.insert(bits.end(), cache.block_bytes().begin(), cache.block_bytes().end());
    return bits;
  });
}

TEST_P(OpsInAnyMode, MergeStates) {
  const HostTensor states = HostTensor::random(DType::f32, {3, 30, 2, 20}, 1, 1e-39);
  const HostTensor lses = HostTensor::random(DType::f32, {3, 30, 2}, 2, 3.0);
  const HostTensor out(DType::f32, {30, 2, 20});
  const HostTensor lse(DType::f32, {30, 2});
  expect_same("merge_states", [&](const Context& context) {
    merge_states(
        {.states = states.view(), .lses = lses.view(), .out = out.view(), .lse = lse.view()},
        context);
    return read_results(out, lse).bits;
  });
}

}  // namespace
}  // namespace quire::cpu
