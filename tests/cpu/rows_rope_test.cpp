// SPDX-License-Identifier: Apache-2.0
// rope on every target against the reference: q by the tolerance rule, K too, and every byte that
// is not a rotated column of a new token untouched.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpu/row_target.h"
#include "cpu/row_tolerance.h"
#include "quire/ops/rope.h"
#include "reference/rope.h"
#include "support/cache_builder.h"
#include "support/cache_snapshot.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::CacheSnapshot;
using test::HostTensor;
using test::TestCache;

constexpr std::int64_t kLayer = 1;
constexpr std::int64_t kMaxPositions = 160;

struct Problem {
  RowFormat format = RowFormat::uniform(DType::bf16, 48);
  DType q_dtype = DType::bf16;
  DType out_dtype = DType::bf16;
  DType freqs_dtype = DType::f32;
  std::int64_t head_dim = 48;  // of q
  std::int64_t rope_dim = 48;
  bool interleaved = false;
  bool in_place = false;
  bool rotate_key = true;
  bool heads_first = false;
  bool has_position_ids = false;
  std::int64_t position_stride = 1;
  std::vector<std::int64_t> sections{};
  std::int64_t q_norm = 0;  // columns; 0: none
  std::int64_t key_norm = 0;
  DType gamma_dtype = DType::bf16;
};

// One evaluation: its own q, out and cache, all made from the same numbers.
struct Subject {
  explicit Subject(const Problem& problem)
      : cache({.cache_lengths = {5, 0, 9, 2},
               .new_tokens = {6, 0, 120, 3},
               .row_format = problem.format,
               .heads_first = problem.heads_first}),
        q(make_numbers(Numbers::ordinary, problem.q_dtype,
                       {cache.num_tokens(), 3, problem.head_dim + 2}, 3)),
        out(problem.out_dtype, {cache.num_tokens(), 3, problem.head_dim + 1}),
        freqs(make_numbers(Numbers::ordinary, problem.freqs_dtype,
                           {kMaxPositions, problem.rope_dim}, 5)),
        ids(DType::u32,
            {std::max<std::int64_t>(1, static_cast<std::int64_t>(problem.sections.size())),
             cache.num_tokens(), problem.position_stride}),
        q_gamma(make_numbers(Numbers::ordinary, problem.gamma_dtype,
                             {std::max<std::int64_t>(1, problem.q_norm)}, 7)),
        key_gamma(make_numbers(Numbers::ordinary, problem.gamma_dtype,
                               {std::max<std::int64_t>(1, problem.key_norm)}, 8)) {
    cache.fill_cached(kLayer, 1);
    cache.fill_new(kLayer, 2, 3.0);
    cache.unassign(2, 4);
    for (std::int64_t i = 0; i < ids.view().numel(); i += problem.position_stride) {
      ids.view().as<std::uint32_t>()[i] = static_cast<std::uint32_t>((i * 37) % kMaxPositions);
    }
    args = {.q = shaped(q.view(), problem.head_dim),
            .row_offsets = cache.row_offsets(),
            .cache = cache.view(),
            .layer = kLayer,
            .freqs_cis = freqs.view(),
            .interleaved = problem.interleaved,
            .mrope_sections = problem.sections,
            .rotate_key = problem.rotate_key,
            .out = shaped((problem.in_place ? q : out).view(), problem.head_dim)};
    if (problem.has_position_ids) {
      args.position_ids = ids.view();
      args.position_ids->rank = 2;
    }
    if (problem.q_norm > 0) args.q_gamma = q_gamma.view();
    if (problem.key_norm > 0) args.key_gamma = key_gamma.view();
    args.weight_offset = 0.25;
  }

  static TensorView shaped(TensorView view, std::int64_t columns) {
    view.shape[2] = columns;
    return view;
  }
  std::vector<double> out_values() const {
    std::vector<double> values;
    for (std::int64_t token = 0; token < args.out.shape[0]; ++token) {
      for (std::int64_t head = 0; head < args.out.shape[1]; ++head) {
        for (std::int64_t column = 0; column < args.out.shape[2]; ++column) {
          values.push_back(args.out.load({token, head, column}));
        }
      }
    }
    return values;
  }
  // Stored numbers of the new tokens' keys.
  std::vector<double> key_values() const {
    std::vector<double> values;
    const KvLayerView key = args.cache.key(kLayer);
    for (std::int64_t token = 0; token < 120; ++token) {
      for (std::int32_t column = 0; column < key.width(); ++column) {
        values.push_back(key.load_quantized(2, 1, 9 + token, column));
      }
    }
    return values;
  }

  TestCache cache;
  HostTensor q;
  HostTensor out;
  HostTensor freqs;
  HostTensor ids;
  HostTensor q_gamma;
  HostTensor key_gamma;
  RopeArgs args{};
};

class RowsRope : public RowTarget {
 protected:
  void expect_right(const Problem& problem) {
    const Subject exact(problem);
    const Subject naive(problem);
    reference::rope(exact.args);
    reference::rope(naive.args, reference::Arithmetic::naive);
    std::vector<std::byte> first_out;
    std::vector<std::byte> first_cache;
    for (const int threads : thread_counts_) {
      const Subject run(problem);
      CacheSnapshot before(run.cache);
      allow_rotated(problem, before);
      ASSERT_EQ(supports(run.args, context(threads)).kernel, kernel("rope"));
      rope(run.args, context(threads));
      EXPECT_EQ(before.unexpected_changes(), 0);
      EXPECT_EQ(before.changes() > 0, problem.rotate_key);
      expect_within_rule(problem.out_dtype, run.out_values(), exact.out_values(),
                         naive.out_values());
      expect_within_rule(problem.format.parts[0].dtype, run.key_values(), exact.key_values(),
                         naive.key_values());
      expect_padding_untouched(run, problem);
      const std::vector<std::byte>& out = (problem.in_place ? run.q : run.out).bytes();
      if (first_out.empty()) {
        first_out = out;
        first_cache = run.cache.block_bytes();
      }
      EXPECT_TRUE(out == first_out && run.cache.block_bytes() == first_cache)
          << threads << " threads give other bits";
    }
  }

 private:
  static void allow_rotated(const Problem& problem, CacheSnapshot& before) {
    if (!problem.rotate_key) return;
    const std::int64_t width = problem.format.width();
    const std::int64_t begin = problem.interleaved ? width - problem.rope_dim : 0;
    allow_columns(problem, begin, begin + problem.rope_dim, before);
    allow_columns(problem, 0, problem.key_norm, before);
  }

  static void allow_columns(const Problem& problem, std::int64_t begin, std::int64_t end,
                            CacheSnapshot& before) {
    std::int64_t column = 0;
    for (std::int32_t p = 0; p < problem.format.num_parts; ++p) {
      const RowPart& part = problem.format.parts[static_cast<std::size_t>(p)];
      const std::int64_t first = std::max(begin - column, std::int64_t{0});
      const std::int64_t last = std::min<std::int64_t>(end - column, part.width);
      if (first < last) {
        before.allow_new_tokens(kLayer, KvSide::key,
                                part.offset_bytes + bytes_for(part.dtype, first),
                                part.offset_bytes + bytes_for(part.dtype, last));
      }
      column += part.width;
    }
  }

  static void expect_padding_untouched(const Subject& run, const Problem& problem) {
    if (problem.in_place) return;
    const TensorView memory = run.out.view();
    for (std::int64_t token = 0; token < memory.shape[0]; ++token) {
      ASSERT_TRUE(std::isnan(memory.load({token, 2, problem.head_dim})));  // poison
    }
  }
};

TEST_P(RowsRope, EveryTypeOfQueryOutputAndKey) {
  for (const bool interleaved : {false, true}) {
    for (const DType q : {DType::f32, DType::f16, DType::bf16}) {
      for (const DType out : {DType::f32, DType::f16, DType::bf16}) {
        expect_right({.q_dtype = q, .out_dtype = out, .interleaved = interleaved});
      }
    }
    for (const DType key : {DType::f32, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2}) {
      expect_right({.format = RowFormat::uniform(key, 48),
                    .freqs_dtype = key == DType::f16 ? DType::f16 : DType::bf16,
                    .interleaved = interleaved});
    }
  }
}

TEST_P(RowsRope, PartialAndOddSizes) {
  for (const bool interleaved : {false, true}) {
    for (const std::int64_t rope_dim : {2, 6, 16, 30, 32, 48}) {
      for (const bool in_place : {false, true}) {
        expect_right({.head_dim = 51,
                      .rope_dim = rope_dim,
                      .interleaved = interleaved,
                      .in_place = in_place,
                      .heads_first = in_place});
        expect_right({.format = RowFormat::uniform(DType::f32, 61),
                      .q_dtype = DType::f32,
                      .out_dtype = DType::bf16,
                      .head_dim = 49,
                      .rope_dim = rope_dim,
                      .interleaved = interleaved});
      }
    }
  }
}

TEST_P(RowsRope, PositionIdsAndSections) {
  for (const bool interleaved : {false, true}) {
    expect_right({.interleaved = interleaved, .has_position_ids = true});
    expect_right({.interleaved = interleaved, .has_position_ids = true, .sections = {8, 8, 8}});
    expect_right({.interleaved = interleaved, .has_position_ids = true, .sections = {3, 0, 5}});
    expect_right({.interleaved = interleaved, .has_position_ids = true, .position_stride = 2});
    expect_right({.interleaved = interleaved,
                  .has_position_ids = true,
                  .position_stride = 3,
                  .sections = {8, 8, 8}});
  }
}

TEST_P(RowsRope, NormBeforeTheRotation) {
  for (const bool interleaved : {false, true}) {
    for (const DType x : {DType::f32, DType::f16, DType::bf16}) {
      expect_right({.format = RowFormat::uniform(x, 48),
                    .q_dtype = x,
                    .out_dtype = x,
                    .interleaved = interleaved,
                    .in_place = x == DType::f16,
                    .q_norm = 48,
                    .key_norm = 48,
                    .gamma_dtype = x});
    }
    // One of the two alone; fewer columns than rotated; a gap between norm and rotation.
    expect_right({.rope_dim = 32, .interleaved = interleaved, .q_norm = 48});
    expect_right({.rope_dim = 32, .interleaved = interleaved, .key_norm = 48});
    expect_right({.rope_dim = 32, .interleaved = interleaved, .q_norm = 7, .key_norm = 19});
    expect_right({.format = RowFormat::uniform(DType::f32, 61),
                  .head_dim = 51,
                  .rope_dim = 6,
                  .interleaved = interleaved,
                  .q_norm = 33,
                  .key_norm = 41,
                  .gamma_dtype = DType::f32});
  }
}

TEST_P(RowsRope, QueryAlone) {
  expect_right({.rotate_key = false});
}

// The rotated columns of a key may lie in two parts of other types; the scaled part stays alone.
TEST_P(RowsRope, KeysOfSeveralParts) {
  RowFormat format = RowFormat::mla_fp8_block(64, 24, 32);
  format.parts[2] = {.dtype = DType::f32, .width = 8, .offset_bytes = format.row_bytes};
  format.num_parts = 3;
  format.row_bytes += 32;
  expect_right({.format = format, .head_dim = 40, .rope_dim = 24, .interleaved = true});
  expect_right({.format = format, .head_dim = 40, .rope_dim = 8, .interleaved = true});
}

TEST_P(RowsRope, AnyNumberOfThreads) {
  thread_counts_ = kThreadCounts;
  expect_right({});
  expect_right({.head_dim = 33, .rope_dim = 30, .interleaved = true});
  expect_right({.q_norm = 48, .key_norm = 48});
}

INSTANTIATE_TEST_SUITE_P(Targets, RowsRope, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
