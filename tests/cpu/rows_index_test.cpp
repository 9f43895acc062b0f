// SPDX-License-Identifier: Apache-2.0
// store_index_keys and quantize_index_queries on every target, judged by the exact rows.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cpu/row_target.h"
#include "quire/ops/quantize_index_queries.h"
#include "quire/ops/store_index_keys.h"
#include "reference/index_rows.h"
#include "support/cache_builder.h"
#include "support/cache_snapshot.h"

namespace quire::cpu {
namespace {

using test::CacheSnapshot;
using test::HostTensor;
using test::TestCache;

struct Rows {
  std::int32_t columns;
  std::int64_t rope_dim;
  bool hadamard;
};

constexpr Rows kRows[] = {{128, 64, true}, {128, 128, false}, {64, 32, true}, {96, 24, false},
                          {37, 6, false},  {8, 8, true},      {4, 2, true},   {2, 0, true},
                          {1, 0, true},    {256, 0, true},    {33, 22, false}};

class RowsIndex : public RowTarget {
 protected:
  static TestCache make_cache(std::int32_t columns) {
    return TestCache({.cache_lengths = {3, 9, 0, 70},
                      .new_tokens = {2, 0, 65, 7},
                      .row_format = RowFormat::scaled(DType::fp8_e4m3, columns, columns),
                      .num_kv_heads = 1,
                      .is_mla = true,
                      .own_scale_pages = true});
  }

  // What both ops have, from a row's shape.
  template <typename Args> void fill(Args& args, const TestCache& cache, const Rows& rows) {
    args.row_offsets = cache.row_offsets();
    args.cache = cache.view();
    args.hadamard = rows.hadamard;
    if (rows.rope_dim == 0) return;
    freqs_ = HostTensor::random(DType::f32, {80, rows.rope_dim}, 5);
    args.freqs_cis = freqs_.view();
  }

  void expect_keys(StoreIndexKeysArgs args, const TestCache& cache) {
    for (const int threads : thread_counts_) {
      ASSERT_EQ(supports(args, context(threads)).kernel, kernel("store_index_keys"));
      CacheSnapshot before(cache);
      before.allow_new_tokens(args.layer, KvSide::key);
      store_index_keys(args, context(threads));
      ASSERT_EQ(before.unexpected_changes(), 0);
      ASSERT_EQ(reference::store_index_keys_fault(args), "") << args.x.describe();
    }
  }

  void expect_queries(QuantizeIndexQueriesArgs args) {
    std::vector<std::byte> codes;
    for (const int threads : thread_counts_) {
      const HostTensor out(DType::fp8_e4m3, {args.q.shape[0], args.q.shape[1], args.q.shape[2]});
      const HostTensor q_scale(DType::f32, {args.q.shape[0], args.q.shape[1]});
      args.out = out.view();
      args.q_scale = q_scale.view();
      ASSERT_EQ(supports(args, context(threads)).kernel, kernel("quantize_index_queries"));
      quantize_index_queries(args, context(threads));
      ASSERT_EQ(reference::quantize_index_queries_fault(args), "") << args.q.describe();
      if (codes.empty()) codes = out.bytes();
      ASSERT_TRUE(out.bytes() == codes) << threads << " threads";
    }
  }

  HostTensor freqs_;
};

TEST_P(RowsIndex, KeysOfAnyShape) {
  for (const Rows& rows : kRows) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const bool has_norm : {false, true}) {
        const TestCache cache = make_cache(rows.columns);
        const HostTensor x =
            make_numbers(Numbers::ordinary, dtype, {cache.num_tokens(), rows.columns}, 17);
        const HostTensor weight = HostTensor::random(DType::bf16, {rows.columns}, 2);
        const HostTensor bias = HostTensor::random(DType::f16, {rows.columns}, 3);
        StoreIndexKeysArgs args;
        args.x = x.view();
        fill(args, cache, rows);
        args.layer = 1;
        args.interleaved = has_norm;
        args.scale_rounding =
            dtype == DType::f16 ? ScaleRounding::exact : ScaleRounding::power_of_two;
        if (has_norm) args.norm_weight = weight.view();
        if (has_norm) args.norm_bias = bias.view();
        expect_keys(args, cache);
      }
    }
  }
}

TEST_P(RowsIndex, QueriesOfAnyShape) {
  for (const Rows& rows : kRows) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const bool has_weights : {false, true}) {
        const TestCache cache = make_cache(rows.columns);
        const HostTensor q =
            make_numbers(Numbers::ordinary, dtype, {cache.num_tokens(), 3, rows.columns}, 19);
        const HostTensor weights = HostTensor::random(dtype, {cache.num_tokens(), 3}, 23);
        QuantizeIndexQueriesArgs args;
        args.q = q.view();
        fill(args, cache, rows);
        args.interleaved = has_weights;
        args.factor = -0.3;
        args.scale_rounding =
            dtype == DType::f16 ? ScaleRounding::exact : ScaleRounding::power_of_two;
        if (has_weights) args.weights = weights.view();
        expect_queries(args);
      }
    }
  }
}

TEST_P(RowsIndex, AnyNumberOfThreads) {
  thread_counts_ = kThreadCounts;
  const TestCache cache = make_cache(128);
  const HostTensor q =
      make_numbers(Numbers::ordinary, DType::bf16, {cache.num_tokens(), 5, 128}, 29);
  QuantizeIndexQueriesArgs args;
  args.q = q.view();
  fill(args, cache, kRows[0]);
  expect_queries(args);
}

// Scales that no reciprocal has: rows down to f32's subnormals, and rows of zeros.
TEST_P(RowsIndex, TinyAndZeroRows) {
  for (const double amplitude : {0x1p-140, 0x1p-90, 0.0}) {
    for (const ScaleRounding rounding : {ScaleRounding::exact, ScaleRounding::power_of_two}) {
      const TestCache cache = make_cache(64);
      const HostTensor x = HostTensor::random(DType::f32, {cache.num_tokens(), 64}, 31, amplitude);
      StoreIndexKeysArgs args;
      args.x = x.view();
      fill(args, cache, {64, 0, false});
      args.layer = 1;
      args.scale_rounding = rounding;
      expect_keys(args, cache);
    }
  }
}

// Deviations so small beside the mean that a mean rounded to f32 would move all of them by a part that shows.
TEST_P(RowsIndex, KeysFarFromZero) {
  const HostTensor weight = HostTensor::filled(DType::f32, {64}, 1.0);
  const HostTensor bias = HostTensor::filled(DType::f32, {64}, 0.0);
  for (const double mean : {0.5, -3.0, 1000.0}) {
    for (const ScaleRounding rounding : {ScaleRounding::exact, ScaleRounding::power_of_two}) {
      const TestCache cache = make_cache(64);
      std::vector<double> values =
          HostTensor::random(DType::f32, {cache.num_tokens(), 64}, 37, 1e-4 * std::abs(mean))
              .values();
      for (double& value : values) value += mean;
      const HostTensor x = HostTensor::of(DType::f32, {cache.num_tokens(), 64}, values);
      StoreIndexKeysArgs args;
      args.x = x.view();
      fill(args, cache, {64, 0, false});
      args.layer = 1;
      args.norm_weight = weight.view();
      args.norm_bias = bias.view();
      args.scale_rounding = rounding;
      expect_keys(args, cache);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowsIndex, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
