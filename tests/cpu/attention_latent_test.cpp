// SPDX-License-Identifier: Apache-2.0
// mla_decode, mla_prefill and sparse_mla of every target that can run here against the oracle.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "cpu/attention_target.h"
#include "reference/mla_decode.h"
#include "reference/mla_prefill.h"
#include "reference/sparse_mla.h"
#include "support/attention_inputs.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::MlaInputs;
using test::MlaShape;

// What one run leaves behind: results, queries rotated in place, and the cache's rows.
struct LatentRun {
  Results results;
  std::vector<double> q;
  std::vector<double> rows;  // of the new tokens
  std::vector<std::byte> cache_bytes;
};

std::vector<double> new_rows(const MlaInputs& inputs) {
  const PagedKVCache cache = inputs.cache.view();
  const KvLayerView view = cache.key(test::kTestLayer);
  const auto* offsets = inputs.cache.row_offsets().as<const std::uint32_t>();
  std::vector<double> values;
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    for (std::int64_t t = 0; t < offsets[sequence + 1] - offsets[sequence]; ++t) {
      for (std::int32_t column = 0; column < view.width(); ++column) {
        values.push_back(view.load(sequence, 0, cache.cache_length(sequence) + t, column));
      }
    }
  }
  return values;
}

LatentRun read_latent_run(const MlaInputs& inputs) {
  return {.results = read_results(inputs.out, inputs.lse),
          .q = inputs.q.values(),
          .rows = new_rows(inputs),
          .cache_bytes = inputs.cache.block_bytes()};
}

class LatentTarget : public RowTarget {
 protected:
  using Op = std::function<void(MlaInputs&)>;
  using Make = std::function<MlaInputs()>;

  // MLA ops change their inputs, so that every run starts from its own.
  static LatentRun run(const Make& make, const Op& op) {
    MlaInputs inputs = make();
    op(inputs);
    return read_latent_run(inputs);
  }

  static void expect_agreement(const LatentRun& actual, const LatentRun& exact,
                               const LatentRun& naive, DType dtype, DType row_dtype) {
    expect_rule(dtype, actual.results, exact.results, naive.results);
    expect_within_rule(dtype, actual.q, exact.q, naive.q);
    expect_within_rule(row_dtype, actual.rows, exact.rows, naive.rows);
  }

  void expect_decode(const Make& make, DType dtype, DType row_dtype) const {
    const LatentRun actual = run(make, [this](MlaInputs& inputs) {
      EXPECT_EQ(supports(inputs.decode_args(), context(2)).kernel, kernel("mla_decode"));
      mla_decode(inputs.decode_args(), context(2));
    });
    const auto oracle = [&make](reference::Arithmetic arithmetic) {
      return run(make, [arithmetic](MlaInputs& inputs) {
        reference::mla_decode(inputs.decode_args(), arithmetic);
      });
    };
    expect_agreement(actual, oracle(reference::Arithmetic::exact),
                     oracle(reference::Arithmetic::naive), dtype, row_dtype);
  }

  void expect_prefill(const Make& make, DType dtype, DType row_dtype) const {
    const LatentRun actual = run(make, [this](MlaInputs& inputs) {
      const MlaPrefillArgs args = inputs.prefill_args(24);
      EXPECT_EQ(supports(args, context(2)).kernel, kernel("mla_prefill"));
      mla_prefill(args, context(2));
    });
    const auto oracle = [&make](reference::Arithmetic arithmetic) {
      return run(make, [arithmetic](MlaInputs& inputs) {
        reference::mla_prefill(inputs.prefill_args(24), arithmetic);
      });
    };
    expect_agreement(actual, oracle(reference::Arithmetic::exact),
                     oracle(reference::Arithmetic::naive), dtype, row_dtype);
  }
};

INSTANTIATE_TEST_SUITE_P(, LatentTarget, kEveryTarget, target_name);

CacheOptions options(std::vector<std::uint32_t> cached, std::vector<std::uint32_t> fresh) {
  return {.cache_lengths = std::move(cached), .new_tokens = std::move(fresh), .page_size = 8};
}

constexpr MlaShape kOddShape{.heads = 5, .nope = 11, .rope = 6, .latent = 37, .value = 13};

TEST_P(LatentTarget, DecodesOddShapes) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const DType weight : {DType::bf16, DType::f16, DType::f32}) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::string(name(weight)));
      expect_decode(
          [&] {
            return MlaInputs(options({9, 0, 3, 40}, {1, 8, 0, 3}), kOddShape, dtype, weight);
          },
          dtype, dtype);
    }
  }
}

TEST_P(LatentTarget, PrefillsOddShapes) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const DType weight : {DType::bf16, DType::f16, DType::f32}) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::string(name(weight)));
      expect_prefill(
          [&] {
            return MlaInputs(options({9, 0, 3, 20}, {2, 37, 0, 18}), kOddShape, dtype, weight);
          },
          dtype, dtype);
    }
  }
}

TEST_P(LatentTarget, TakesFp8Weights) {
  const MlaShape shape{.heads = 3, .nope = 128, .rope = 4, .latent = 140, .value = 128};
  const auto make = [&] {
    return MlaInputs(options({9, 0}, {2, 5}), shape, DType::bf16, DType::fp8_e4m3);
  };
  expect_decode(make, DType::bf16, DType::bf16);
  expect_prefill(make, DType::bf16, DType::bf16);
}

TEST_P(LatentTarget, TakesEveryRowFormat) {
  const MlaShape plain{.heads = 2, .nope = 8, .rope = 8, .latent = 32, .value = 16};
  for (const RowFormat& format :
       {RowFormat::uniform(DType::fp8_e4m3, 40), RowFormat::scaled(DType::fp8_e4m3, 40, 8),
        RowFormat::mla_fp8_token(32, 8), RowFormat::mla_fp8_block(32, 8, 16)}) {
    SCOPED_TRACE(format.describe());
    MlaShape shape = plain;
    shape.row_format = format;
    const auto make = [&] {
      return MlaInputs(options({9, 30}, {2, 5}), shape, DType::bf16, DType::bf16);
    };
    // The floor of a stored row is an ulp of its coarsest part.
    expect_decode(make, DType::bf16, DType::fp8_e4m3);
    expect_prefill(make, DType::bf16, DType::fp8_e4m3);
  }
}

TEST_P(LatentTarget, IsTheSameOnAnyNumberOfThreads) {
  const MlaShape shape{.heads = 20, .nope = 16, .rope = 4, .latent = 24, .value = 8};
  const auto make = [&] {
    return MlaInputs(options({9, 0, 33}, {2, 7, 1}), shape, DType::bf16, DType::bf16);
  };
  const auto decode = [&](int num_threads) {
    return run(make,
               [&](MlaInputs& inputs) { mla_decode(inputs.decode_args(), context(num_threads)); });
  };
  const auto prefill = [&](int num_threads) {
    return run(
        make, [&](MlaInputs& inputs) { mla_prefill(inputs.prefill_args(), context(num_threads)); });
  };
  const LatentRun decoded = decode(1);
  const LatentRun prefilled = prefill(1);
  for (const int num_threads : kThreadCounts) {
    EXPECT_EQ(decode(num_threads).results.bits, decoded.results.bits) << num_threads;
    EXPECT_EQ(decode(num_threads).cache_bytes, decoded.cache_bytes) << num_threads;
    EXPECT_EQ(prefill(num_threads).results.bits, prefilled.results.bits) << num_threads;
    EXPECT_EQ(prefill(num_threads).q, prefilled.q) << num_threads;
  }
}

// A cache, its extra twin and hostile indices: holes, duplicates, positions past the end.
struct SparseProblem {
  SparseProblem(DType dtype, std::int64_t slots)
      : inputs(options({9, 300, 3}, {2, 3, 1}), MlaShape{.heads = 18, .rope = 6, .latent = 37},
               dtype),
        extra(options({4, 20, 3}, {2, 3, 1}), MlaShape{.heads = 18, .rope = 6, .latent = 37},
              DType::f32),
        q(HostTensor::random(dtype, {6, 18, 43}, 3)),
        indices(hostile(slots, 320)),
        extra_indices(hostile(7, 30)),
        lengths(HostTensor::of(DType::i32, {6}, {150, -3, 70, 9000, 0, 513})),
        out(dtype, {6, 18, 37}),
        lse(DType::f32, {6, 18}) {
    inputs.cache.fill_new(test::kTestLayer, 21);
    extra.cache.fill_new(test::kTestLayer, 22);
  }

  static HostTensor hostile(std::int64_t slots, std::uint64_t range) {
    HostTensor tensor(DType::i32, {6, slots});
    std::uint64_t state = 7;
    for (std::int64_t token = 0; token < 6; ++token) {
      for (std::int64_t slot = 0; slot < slots; ++slot) {
        const double place = (test::next_uniform(state) + 0.9) * 0.5 * static_cast<double>(range);
        tensor.view().store({token, slot}, slot % 11 == 4 ? -1.0 : static_cast<int>(place));
      }
    }
    return tensor;
  }

  SparseMlaArgs args(bool has_extra) const {
    SparseMlaArgs args = inputs.sparse_args(q, indices, out);
    args.lse = lse.view();
    args.topk_lengths = lengths.view();
    if (has_extra) {
      args.extra = SparseExtra{
          .cache = extra.cache.view(), .layer = test::kTestLayer, .indices = extra_indices.view()};
    }
    return args;
  }

  MlaInputs inputs;
  MlaInputs extra;
  HostTensor q;
  HostTensor indices;
  HostTensor extra_indices;
  HostTensor lengths;
  HostTensor out;
  HostTensor lse;
};

void expect_chosen_rows(DType dtype, std::int64_t slots, bool has_extra,
                        const std::function<Context(int)>& context) {
  SparseProblem problem(dtype, slots);
  const SparseMlaArgs args = problem.args(has_extra);
  reference::sparse_mla(args, reference::Arithmetic::exact);
  const Results exact = read_results(problem.out, problem.lse);
  reference::sparse_mla(args, reference::Arithmetic::naive);
  const Results naive = read_results(problem.out, problem.lse);
  std::vector<std::byte> expected;
  for (const int num_threads : kThreadCounts) {
    poison(problem.out);
    poison(problem.lse);
    sparse_mla(args, context(num_threads));
    const Results actual = read_results(problem.out, problem.lse);
    expect_rule(dtype, actual, exact, naive);
    if (expected.empty()) expected = actual.bits;
    EXPECT_EQ(actual.bits, expected) << num_threads;
  }
}

// 150 slots are one item of a token, 1100 are cut.
TEST_P(LatentTarget, AttendsChosenRows) {
  const SparseProblem problem(DType::bf16, 150);
  EXPECT_EQ(supports(problem.args(true), context(2)).kernel, kernel("sparse_mla"));
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const std::int64_t slots : {150, 1100}) {
      for (const bool has_extra : {false, true}) {
        SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(slots) +
                     (has_extra ? " extra" : ""));
        expect_chosen_rows(dtype, slots, has_extra, [&](int threads) { return context(threads); });
      }
    }
  }
}

}  // namespace
}  // namespace quire::cpu
