// SPDX-License-Identifier: Apache-2.0
// rms_norm_key and rms_norm_value on every target against the reference.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpu/row_target.h"
#include "cpu/row_tolerance.h"
#include "quire/ops/rms_norm.h"
#include "reference/rms_norm.h"
#include "support/cache_builder.h"
#include "support/cache_snapshot.h"

namespace quire::cpu {
namespace {

using test::CacheSnapshot;
using test::HostTensor;
using test::TestCache;

constexpr std::int64_t kLayer = 1;
constexpr std::int64_t kHeads = 2;

struct Problem {
  RowFormat format = RowFormat::uniform(DType::bf16, 48);
  DType gamma_dtype = DType::bf16;
  std::int64_t columns = 48;
  KvSide side = KvSide::key;
  double epsilon = 1e-6;
  double weight_offset = 0.0;
  bool per_head = true;
  bool multiply_before_cast = true;
  bool heads_first = false;
  double amplitude = 2.0;
};

struct Subject {
  explicit Subject(const Problem& problem)
      : cache({.cache_lengths = {5, 0, 9, 2},
               .new_tokens = {6, 0, 120, 3},
               .row_format = problem.format,
               .num_kv_heads = kHeads,
               .heads_first = problem.heads_first}),
        gamma(make_numbers(Numbers::ordinary, problem.gamma_dtype,
                           {problem.per_head ? problem.columns : kHeads * problem.format.width()},
                           5)) {
    cache.fill_cached(kLayer, 1);
    cache.fill_new(kLayer, 2, problem.amplitude);
    cache.unassign(2, 4);
    args = {.cache = cache.view(),
            .layer = kLayer,
            .side = problem.side,
            .row_offsets = cache.row_offsets(),
            .gamma = gamma.view(),
            .epsilon = problem.epsilon,
            .weight_offset = problem.weight_offset,
            .per_head = problem.per_head,
            .multiply_before_cast = problem.multiply_before_cast};
  }
  std::vector<double> values() const {
    std::vector<double> values;
    const KvLayerView view =
        args.side == KvSide::key ? args.cache.key(kLayer) : args.cache.value(kLayer);
    for (std::int64_t head = 0; head < kHeads; ++head) {
      for (std::int64_t token = 0; token < 120; ++token) {
        for (std::int32_t column = 0; column < view.width(); ++column) {
          values.push_back(view.load_quantized(2, head, 9 + token, column));
        }
      }
    }
    return values;
  }

  TestCache cache;
  HostTensor gamma;
  RmsNormArgs args{};
};

class RowsRmsNorm : public RowTarget {
 protected:
  void expect_right(const Problem& problem) {
    const Subject exact(problem);
    const Subject naive(problem);
    reference::rms_norm(exact.args);
    reference::rms_norm(naive.args, reference::Arithmetic::naive);
    std::vector<std::byte> first;
    for (const int threads : thread_counts_) {
      const Subject run(problem);
      CacheSnapshot before(run.cache);
      before.allow_new_tokens(kLayer, problem.side, 0, changed_bytes(problem));
      ASSERT_EQ(supports(run.args, context(threads)).kernel, kernel("rms_norm"));
      if (problem.side == KvSide::key) {
        rms_norm_key(run.args, context(threads));
      } else {
        rms_norm_value(run.args, context(threads));
      }
      EXPECT_EQ(before.unexpected_changes(), 0);
      EXPECT_GT(before.changes(), 0);
      expect_within_rule(problem.format.parts[0].dtype, run.values(), exact.values(),
                         naive.values());
      if (first.empty()) first = run.cache.block_bytes();
      EXPECT_TRUE(run.cache.block_bytes() == first) << threads << " threads give other bits";
      if (!problem.multiply_before_cast) {
        EXPECT_EQ(run.values(), exact.values()) << "rounded elsewhere than the reference";
      }
    }
  }

 private:
  static std::int64_t changed_bytes(const Problem& problem) {
    if (!problem.per_head || !problem.format.is_uniform()) return problem.format.row_bytes;
    return bytes_for(problem.format.parts[0].dtype, problem.columns);
  }
};

TEST_P(RowsRmsNorm, EveryTypePerHeadAndPerToken) {
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2}) {
    for (const DType gamma : {DType::f32, DType::f16, DType::bf16}) {
      for (const bool per_head : {true, false}) {
        for (const KvSide side : {KvSide::key, KvSide::value}) {
          expect_right({.format = RowFormat::uniform(dtype, 48),
                        .gamma_dtype = gamma,
                        .side = side,
                        .per_head = per_head,
                        .heads_first = per_head});
        }
      }
    }
  }
}

TEST_P(RowsRmsNorm, FirstColumnsAndOddSizes) {
  for (const std::int64_t columns : {1, 3, 7, 16, 31, 32, 45, 61}) {
    expect_right({.format = RowFormat::uniform(DType::bf16, 61), .columns = columns});
    expect_right({.format = RowFormat::uniform(DType::f32, 61),
                  .gamma_dtype = DType::f32,
                  .columns = columns,
                  .epsilon = 0.5,
                  .weight_offset = 1.0});
  }
  expect_right({.format = RowFormat::uniform(DType::f16, 29), .per_head = false});
}

// bf16 and f16 rows: the value that gamma multiplies has gamma's bits, so the product is exact in
// f32, and the result must be the reference's own.
TEST_P(RowsRmsNorm, CastsBeforeMultiplyingWhereTheReferenceDoes) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const DType gamma : {DType::bf16, DType::f16}) {
      for (const double amplitude : {0.01, 2.0, 40.0}) {
        expect_right({.format = RowFormat::uniform(dtype, 61),
                      .gamma_dtype = gamma,
                      .columns = 61,
                      .multiply_before_cast = false,
                      .amplitude = amplitude});
      }
    }
  }
}

TEST_P(RowsRmsNorm, RowsOfSeveralParts) {
  RowFormat format = RowFormat::uniform(DType::bf16, 21);
  format.parts[1] = {.dtype = DType::f32, .width = 18, .offset_bytes = 50};
  format.num_parts = 2;
  format.row_bytes = 130;
  expect_right({.format = format, .columns = 30});
  expect_right({.format = format, .per_head = false});
}

TEST_P(RowsRmsNorm, HugeAndTinyRows) {
  for (const double amplitude : {1e-30, 1e30}) {
    expect_right({.format = RowFormat::uniform(DType::f32, 48),
                  .gamma_dtype = DType::f32,
                  .amplitude = amplitude});
  }
}

TEST_P(RowsRmsNorm, AnyNumberOfThreads) {
  thread_counts_ = kThreadCounts;
  expect_right({});
  expect_right({.per_head = false});
}

INSTANTIATE_TEST_SUITE_P(Targets, RowsRmsNorm, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
