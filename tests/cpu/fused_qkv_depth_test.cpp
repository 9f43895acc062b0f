// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul over depths K on both sides of every unit of the kernels (pairs, quads, words of eight numbers,
// tiles of 32, scale blocks of 128, depth blocks of 256 and 512), for every weight format, dtype and scale of x, with
// and without a permutation, plain and packed. Scratch is poisoned: what a kernel reads past the end of K is NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cpu/projection_weight.h"
#include "cpu/row_target.h"
#include "cpu/runtime/scratch.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "reference/fused_qkv_matmul.h"
#include "support/cache_builder.h"
#include "support/expect_near.h"
#include "support/host_tensor.h"

namespace quire::cpu {
namespace {

using test::HostTensor;
using test::TestCache;

constexpr std::int64_t kTokens = 17;  // more than any engine has rows
constexpr std::int32_t kWidth = 8;
constexpr std::int64_t kQueryDim = 8;
constexpr std::int64_t kRows = kQueryDim + 2 * kWidth;  // ends inside panels of 16 and of 32

enum class XScale { none, tensor, token, block };

struct InputKind {
  std::string name;
  DType dtype;
  XScale scale = XScale::none;
};

const InputKind kInputKinds[] = {
    {"f32", DType::f32},
    {"f16", DType::f16},
    {"bf16", DType::bf16},
    {"e4m3_tensor", DType::fp8_e4m3, XScale::tensor},
    {"e4m3_token", DType::fp8_e4m3, XScale::token},
    {"e4m3_block", DType::fp8_e4m3, XScale::block},
    {"e5m2_block", DType::fp8_e5m2, XScale::block},
};

// x with its scales, whose sizes differ a hundredfold from block to block.
struct Input {
  HostTensor x;
  std::optional<HostTensor> scale;

  Input(const InputKind& kind, std::int64_t columns)
      : x(HostTensor::random(kind.dtype, {kTokens, columns}, 9)) {
    if (kind.scale == XScale::none) return;
    const std::int64_t rows = kind.scale == XScale::tensor ? 1 : kTokens;
    scale.emplace(DType::f32,
                  std::vector{rows, kind.scale == XScale::block ? (columns + 127) / 128 : 1});
    const TensorView view = scale->view();
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      view.as<float>()[i] = (i % 2 == 0 ? 1.0f : 100.0f) * (1.0f + 0.1f * static_cast<float>(i));
    }
  }
};

// Both sides of the units up to `most`.
std::vector<std::int64_t> depths_of(const WeightKind& kind, std::int64_t most) {
  const std::int64_t unit = depth_unit(kind);
  std::vector<std::int64_t> depths;
  const auto add = [&](std::int64_t depth) {
    if (depth > 0 && depth <= most && depth % unit == 0) depths.push_back(depth);
  };
  for (const std::int64_t border : {2, 4, 8, 16, 24, 32, 56, 128, 152, 256, 512, 536}) {
    add(border - 1);
    add(border);
    add(border + 1);
  }
  for (std::int64_t groups = 1; unit > 1 && groups * unit <= most; ++groups) add(groups * unit);
  std::ranges::sort(depths);
  depths.erase(std::ranges::unique(depths).begin(), depths.end());
  return depths;
}

class FusedQkvDepth : public RowTarget {
 protected:
  void SetUp() override {
    RowTarget::SetUp();
    was_poisoned_ = is_scratch_poisoned();
    poison_scratch(true);
  }
  void TearDown() override { poison_scratch(was_poisoned_); }

  // The first `count` tokens: Q, K and V of each.
  template <typename Op>
  static std::vector<double> run(const Weight& weight, const Input& input, std::int64_t count,
                                 Op&& op) {
    const TestCache cache({.cache_lengths = {5},
                           .new_tokens = {static_cast<std::uint32_t>(count)},
                           .row_format = RowFormat::uniform(DType::f32, kWidth),
                           .page_size = 16,
                           .num_kv_heads = 1});
    const HostTensor out(DType::f32, {count, kQueryDim});
    FusedQkvArgs args{.x = input.x.view(),
                      .row_offsets = cache.row_offsets(),
                      .weight = weight,
                      .cache = cache.view(),
                      .layer = 1,
                      .out = out.view()};
    args.x.shape[0] = count;
    if (input.scale) {
      args.input_scale = input.scale->view();
      if (args.input_scale->shape[0] > 1) args.input_scale->shape[0] = count;
    }
    op(args);
    std::vector<double> values;
    for (std::int64_t token = 0; token < count; ++token) {
      for (std::int64_t n = 0; n < kQueryDim; ++n) values.push_back(out.at({token, n}));
      for (std::int32_t column = 0; column < kWidth; ++column) {
        values.push_back(cache.view().key(1).load(0, 0, 5 + token, column));
        values.push_back(cache.view().value(1).load(0, 0, 5 + token, column));
      }
    }
    return values;
  }

  // One token, few, and more than an engine has rows; plain and packed.
  void expect_reference(ProjectionWeight& weight, const Input& input, Activations activations) {
    const std::vector<double> want = run(weight.plain, input, kTokens, [&](FusedQkvArgs args) {
      args.activations = activations;
      reference::fused_qkv_matmul(args);
    });
    const double tolerance = 2e-6 * test::largest_magnitude(want);  // fp32 sums
    ASSERT_GT(tolerance, 0.0);
    const bool is_exact = activations == Activations::exact;
    const Weight packed = weight.packed(context(2));
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{5}, kTokens}) {
      SCOPED_TRACE(std::to_string(count) + " tokens");
      const auto on_target = [&](const Weight& subject) {
        return run(subject, input, count, [&](FusedQkvArgs args) {
          args.activations = activations;
          fused_qkv_matmul(args, context(2));
        });
      };
      const std::vector<double> have = on_target(packed);
      test::expect_near(have, std::vector(want.begin(), want.begin() + count * kRows), tolerance);
      if (!is_exact) continue;  // int8 wants packed weights
      EXPECT_EQ(on_target(weight.plain), have) << "plain";
    }
  }

  void expect_reference(const WeightKind& kind, std::int64_t depth) {
    for (const bool has_perm : {false, true}) {
      ProjectionWeight weight(kind, kRows, depth);
      if (has_perm) weight.permute();
      for (const InputKind& input : kInputKinds) {
        SCOPED_TRACE(kind.name + " with " + input.name + ", K = " + std::to_string(depth) +
                     (has_perm ? ", permuted" : ""));
        const Input x(input, depth);
        expect_reference(weight, x, Activations::exact);
        if (takes_int8_activations(kind.format) && input.scale == XScale::none) {
          expect_reference(weight, x, Activations::int8);
        }
        if (HasFailure()) return;
      }
    }
  }

  bool was_poisoned_ = false;
};

TEST_P(FusedQkvDepth, OfAnyDenseOrFp8Weight) {
  for (const WeightKind& kind : kWeightKinds) {
    if (depth_unit(kind) != 1) continue;
    for (const std::int64_t depth : depths_of(kind, 544)) expect_reference(kind, depth);
  }
}

TEST_P(FusedQkvDepth, OfWeightsInGroups) {
  for (const WeightKind& kind : kWeightKinds) {
    if (depth_unit(kind) == 1) continue;
    for (const std::int64_t depth : depths_of(kind, 544)) expect_reference(kind, depth);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FusedQkvDepth, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
