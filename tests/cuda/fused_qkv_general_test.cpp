// SPDX-License-Identifier: Apache-2.0
// The general kernels against the oracle, for what the cases of `quire check` do not have: odd
// sizes, odd strides and addresses, every weight format beside every kind of cache. Skipped where
// there is no GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/block_format.h"
#include "cuda/any/fused_qkv_matmul/launch.h"
#include "cuda/common/runtime/device_facts.h"
#include "device_twin.h"
#include "fused_qkv_subject.h"
#include "reference/fused_qkv_matmul.h"
#include "support/cache_snapshot.h"

namespace quire::cuda::any::fused_qkv_matmul {
namespace {

using test::CacheSnapshot;
using Problem = test::FusedQkvSpec;
using Subject = test::FusedQkvSubject;

// Half a step of the type, or a whole one where the last bit of a sum decides.
double step(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 1e-6;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::fp8_e4m3:
      return 0x1p-3;
    case DType::fp8_e5m2:
      return 0x1p-2;
    default:
      return 0x1p-6;
  }
}

// `scale` is the size of the sums' terms: what cancels leaves fp32 noise of that size.
void expect_close(double actual, double expected, DType dtype, double scale,
                  const std::string& where) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << where;
    return;
  }
  EXPECT_NEAR(actual, expected, step(dtype) * std::abs(expected) + 2e-6 * scale) << where;
}

DType widest_error(const RowFormat& format) {
  DType dtype = format.parts[0].dtype;
  for (int p = 1; p < format.num_parts; ++p) {
    if (step(format.parts[static_cast<std::size_t>(p)].dtype) > step(dtype)) {
      dtype = format.parts[static_cast<std::size_t>(p)].dtype;
    }
  }
  return dtype;
}

void compare_rows(const KvLayerView& actual, const KvLayerView& expected,
                  const std::vector<std::uint32_t>& new_tokens) {
  const DType dtype = widest_error(actual.row_format);
  for (std::int64_t sequence = 0; sequence < actual.batch; ++sequence) {
    const std::int64_t first = expected.cache_length(sequence);
    const std::int64_t count = new_tokens[static_cast<std::size_t>(sequence)];
    for (std::int64_t token = first; token < first + count; ++token) {
      for (std::int64_t head = 0; head < actual.num_heads; ++head) {
        double largest = 0.0;
        for (std::int32_t c = 0; c < actual.width(); ++c) {
          largest = std::max(largest, std::abs(expected.load(sequence, head, token, c)));
        }
        // Small numbers of a scaled row are coarse steps of its scale.
        const bool is_coarse = actual.row_format.parts[0].dtype == DType::i8 ||
                               actual.row_format.parts[0].scale_source != ScaleSource::none;
        const double scale = is_coarse ? 4e3 * largest : 10.0;
        for (std::int32_t c = 0; c < actual.width(); ++c) {
          expect_close(actual.load(sequence, head, token, c),
                       expected.load(sequence, head, token, c), dtype, scale,
                       "row " + std::to_string(token) + " of " + std::to_string(sequence) +
                           ", head " + std::to_string(head) + ", column " + std::to_string(c));
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

class FusedQkvGeneral : public testing::TestWithParam<Problem> {
 protected:
  void SetUp() override {
    const std::string reason = refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(FusedQkvGeneral, AgreesWithTheOracle) {
  const Subject subject(GetParam());
  const Subject oracle(GetParam());
  CacheSnapshot before(subject.cache());
  before.allow_new_tokens(1, KvSide::key);
  if (!GetParam().is_mla) before.allow_new_tokens(1, KvSide::value);

  test::DeviceTwin twin;
  const FusedQkvArgs there = twin.move(subject.args);
  const FusedQkvProblem problem = validate(there);
  ASSERT_EQ(refuse_general(problem), "");
  const KernelPtr<Projection> kernel = prepare_general(problem);
  const DeviceBuffer workspace(kernel->workspace_bytes());
  Context context;
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.bytes();
  kernel->run(Projection(there), context);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  twin.bring_back();
  reference::fused_qkv_matmul(oracle.args);

  EXPECT_EQ(before.unexpected_changes(), 0);
  for (std::int64_t token = 0; token < subject.args.out.shape[0]; ++token) {
    for (std::int64_t column = 0; column < subject.args.out.shape[1]; ++column) {
      expect_close(subject.args.out.load({token, column}), oracle.args.out.load({token, column}),
                   GetParam().out, 10.0,
                   "out[" + std::to_string(token) + ", " + std::to_string(column) + "]");
      if (HasFailure()) return;
    }
  }
  compare_rows(subject.args.cache.key(1), oracle.args.cache.key(1), GetParam().new_tokens);
  if (GetParam().is_mla) return;
  compare_rows(subject.args.cache.value(1), oracle.args.cache.value(1), GetParam().new_tokens);
}

std::vector<Problem> problems() {
  const RowFormat f32 = RowFormat::uniform(DType::f32, 24);
  const auto weight = [&](std::string name, WeightFormat format, DType dtype) {
    return Problem{
        .name = std::move(name), .row = f32, .out = DType::f32, .format = format, .weight = dtype};
  };
  std::vector<Problem> all{
      {.name = "bf16"},
      {.name = "f32", .row = f32, .x = DType::f32, .out = DType::f32, .weight = DType::f32},
      {.name = "f16",
       .row = RowFormat::uniform(DType::f16, 24),
       .x = DType::f16,
       .out = DType::f16,
       .weight = DType::f16,
       .heads_first = true},
      {.name = "f32_odd",
       .hidden = 131,
       .q_dim = 37,
       .heads = 3,
       .row = RowFormat::uniform(DType::f32, 19),
       .x = DType::f32,
       .out = DType::f32,
       .weight = DType::f32,
       .is_ragged = true},
      {.name = "bf16_odd",
       .hidden = 131,
       .q_dim = 37,
       .heads = 3,
       .row = RowFormat::uniform(DType::bf16, 19),
       .has_perm = true,
       .is_ragged = true},
      {.name = "fp8_x_tensor", .hidden = 300, .x = DType::fp8_e5m2, .input_columns = 0},
      {.name = "fp8_x_token", .x = DType::fp8_e4m3, .input_columns = 1, .is_ragged = true},
      {.name = "fp8_x_block",
       .hidden = 300,
       .x = DType::fp8_e4m3,
       .input_columns = 3,
       .has_perm = true},
      {.name = "fp8_cache", .row = RowFormat::uniform(DType::fp8_e4m3, 24)},
      {.name = "e5m2_cache", .row = RowFormat::uniform(DType::fp8_e5m2, 24)},
      {.name = "fp8_granules",
       .row = RowFormat::scaled(DType::fp8_e4m3, 64, 32),
       .own_scale_pages = true},
      {.name = "i8_rows",
       .row = RowFormat::scaled(DType::i8, 64, 64, DType::f16),
       .heads_first = true},
      {.name = "i8_odd_granules", .row = RowFormat::scaled(DType::i8, 20, 6)},
      {.name = "fp8_static",
       .row = RowFormat::scaled(DType::fp8_e4m3, 64, 64),
       .static_scale = 0.02},
      {.name = "mla_bf16", .heads = 1, .row = RowFormat::uniform(DType::bf16, 576), .is_mla = true},
      {.name = "mla_token", .heads = 1, .row = RowFormat::mla_fp8_token(), .is_mla = true},
      {.name = "mla_block", .heads = 1, .row = RowFormat::mla_fp8_block(), .is_mla = true},
  };
  Problem fp8 = weight("fp8_tensor", WeightFormat::fp8, DType::fp8_e4m3);
  all.push_back(fp8);
  fp8.name = "fp8_channel";
  fp8.scale_rows = 0;
  fp8.weight = DType::fp8_e5m2;
  all.push_back(fp8);
  fp8.name = "fp8_block_odd";
  fp8.scale_rows = -1;
  fp8.hidden = 200;
  fp8.is_ragged = true;
  all.push_back(fp8);
  for (const WeightFormat format :
       {WeightFormat::int4, WeightFormat::gptq, WeightFormat::gptq_v2, WeightFormat::awq}) {
    Problem grouped = weight(std::string(name(format)), format, DType::u4);
    all.push_back(grouped);
    grouped.name += "_zeros_perm";
    grouped.has_zeros = true;
    grouped.has_perm = true;
    all.push_back(grouped);
    grouped.name += "_int8";
    grouped.activations = Activations::int8;
    all.push_back(grouped);
  }
  for (const BlockFormat& block : kBlockFormats) {
    const std::string format(name(block.format));
    all.push_back(weight(format, block.format, DType::u8));
    if (!takes_int8_activations(block.format)) continue;
    Problem rounded = weight(format + "_int8_rows", block.format, DType::u8);
    rounded.activations = Activations::int8;
    rounded.row = RowFormat::scaled(DType::i8, 24, 8);
    all.push_back(rounded);
  }
  // Both kernels: few tokens, and more than one tile of them.
  const std::size_t count = all.size();
  for (std::size_t i = 0; i < count; ++i) {
    Problem few = all[i];
    few.name += "_few";
    few.new_tokens = {1, 0, 9};
    all.push_back(few);
  }
  for (std::size_t i = 0; i < count; ++i) all[i].new_tokens = {3, 0, 80};
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FusedQkvGeneral, testing::ValuesIn(problems()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quire::cuda::any::fused_qkv_matmul
