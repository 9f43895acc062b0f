// SPDX-License-Identifier: Apache-2.0
// Packed weights: the same bits as plain ones, for every format, on every target that can run here,
// whatever the batch and the number of threads.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cpu/projection_weight.h"
#include "cpu/row_target.h"
#include "cpu/runtime/target.h"
#include "quire/error.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "quire/pack_weight.h"
#include "reference/fused_qkv_matmul.h"
#include "support/cache_builder.h"
#include "support/expect_near.h"
#include "support/host_tensor.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::TestCache;

constexpr std::int64_t kHidden = 768;  // more than one depth block, the last one shorter
constexpr std::int64_t kQueryDim = 72;
constexpr std::int64_t kHeads = 3;
constexpr std::int32_t kWidth = 24;
constexpr std::int64_t kColumns = kQueryDim + 2 * kHeads * kWidth;  // ends inside a panel

// Plain weights of each kind; those that are drawn for it carry a permutation.
ProjectionWeight make_weight(const WeightKind& kind) {
  ProjectionWeight weight(kind, kColumns, kHidden);
  const bool has_perm = kind.name == "bf16" || kind.name == "int4_64" || kind.name == "gptq_128";
  if (has_perm) weight.permute();
  return weight;
}

void expect_close(const std::vector<double>& have, const std::vector<double>& want,
                  const std::string& what) {
  SCOPED_TRACE(what);
  const double largest = test::largest_magnitude(want);
  EXPECT_GT(largest, 0.0);
  test::expect_near(have, want, 2e-6 * largest);  // fp32 sums of some hundred terms
}

class PackedWeights : public RowTarget {
 protected:
  // Rows [first, first + count) of x: Q, K and V of every token.
  template <typename Op>
  static std::vector<double> run(const Weight& weight, const HostTensor& x, std::int64_t first,
                                 std::int64_t count, Op&& op) {
    const TestCache cache({.cache_lengths = {5},
                           .new_tokens = {static_cast<std::uint32_t>(count)},
                           .row_format = RowFormat::uniform(DType::f32, kWidth),
                           .page_size = 16,
                           .num_kv_heads = kHeads});
    const HostTensor out(DType::f32, {count, kQueryDim});
    TensorView rows = x.view();
    rows.shape[0] = count;
    rows.data = rows.as<std::byte>() + bytes_for(rows.dtype, first * rows.strides[0]);
    op(FusedQkvArgs{.x = rows,
                    .row_offsets = cache.row_offsets(),
                    .weight = weight,
                    .cache = cache.view(),
                    .layer = 1,
                    .out = out.view()});
    std::vector<double> values;
    for (std::int64_t token = 0; token < count; ++token) {
      for (std::int64_t n = 0; n < kQueryDim; ++n) values.push_back(out.view().load({token, n}));
      for (std::int64_t head = 0; head < kHeads; ++head) {
        for (std::int32_t column = 0; column < kWidth; ++column) {
          values.push_back(cache.view().key(1).load(0, head, 5 + token, column));
          values.push_back(cache.view().value(1).load(0, head, 5 + token, column));
        }
      }
    }
    return values;
  }

  std::vector<double> on_target(const Weight& weight, const HostTensor& x, std::int64_t first,
                                std::int64_t count, int threads) const {
    return run(weight, x, first, count,
               [&](const FusedQkvArgs& args) { fused_qkv_matmul(args, context(threads)); });
  }
};

TEST_P(PackedWeights, GiveTheBitsOfPlainOnes) {
  for (const WeightKind& format : kWeightKinds) {
    ProjectionWeight weight = make_weight(format);
    const Weight packed = weight.packed(context(2));
    EXPECT_EQ(packed.rows(), kColumns);
    EXPECT_EQ(packed.columns(), kHidden);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const HostTensor x = HostTensor::random(dtype, {70, kHidden}, 9);
      for (const std::int64_t count : {1, 2, 3, 8, 40, 70}) {
        EXPECT_EQ(on_target(packed, x, 0, count, 2), on_target(weight.plain, x, 0, count, 2))
            << format.name << " with " << quire::name(dtype) << ", " << count << " tokens";
      }
    }
  }
}

TEST_P(PackedWeights, NeitherBatchNorThreadsChangeABit) {
  constexpr std::int64_t kTokens = 70;
  for (const WeightKind& format : kWeightKinds) {
    ProjectionWeight weight = make_weight(format);
    const Weight packed = weight.packed(context(1));
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const HostTensor x = HostTensor::random(dtype, {kTokens, kHidden}, 10);
      const std::vector<double> all = on_target(packed, x, 0, kTokens, 1);
      for (const int threads : {2, 3, 16}) {
        EXPECT_EQ(on_target(packed, x, 0, kTokens, threads), all) << format.name << threads;
      }
      for (const std::int64_t token : {0, 1, 31, 63, 69}) {
        const auto begin = all.begin() + token * kColumns;
        EXPECT_EQ(on_target(packed, x, token, 1, 1), std::vector<double>(begin, begin + kColumns))
            << format.name << " with " << quire::name(dtype) << ", token " << token;
      }
    }
  }
}

TEST_P(PackedWeights, AgreeWithTheReference) {
  for (const WeightKind& format : kWeightKinds) {
    ProjectionWeight weight = make_weight(format);
    const Weight packed = weight.packed(context(2));
    const HostTensor x = HostTensor::random(DType::bf16, {9, kHidden}, 11);
    const std::vector<double> have = on_target(packed, x, 0, 9, 2);
    const std::vector<double> want = run(
        weight.plain, x, 0, 9, [](const FusedQkvArgs& args) { reference::fused_qkv_matmul(args); });
    expect_close(have, want, format.name);
  }
}

TEST_P(PackedWeights, TakeInt8Activations) {
  constexpr std::int64_t kTokens = 70;
  for (const WeightKind& format : kWeightKinds) {
    if (!takes_int8_activations(format.format)) continue;
    ProjectionWeight weight = make_weight(format);
    const Weight packed = weight.packed(context(2));
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const HostTensor x = HostTensor::random(dtype, {kTokens, kHidden}, 13);
      const auto on_cpu = [&](std::int64_t first, std::int64_t count, int threads) {
        return run(packed, x, first, count, [&](FusedQkvArgs args) {
          args.activations = Activations::int8;
          fused_qkv_matmul(args, context(threads));
        });
      };
      const std::vector<double> all = on_cpu(0, kTokens, 1);
      for (const int threads : {2, 3, 16}) {
        EXPECT_EQ(on_cpu(0, kTokens, threads), all) << format.name << threads;
      }
      for (const std::int64_t token : {0, 33, 69}) {
        const auto begin = all.begin() + token * kColumns;
        EXPECT_EQ(on_cpu(token, 1, 1), std::vector<double>(begin, begin + kColumns)) << format.name;
      }
      const std::vector<double> want = run(weight.plain, x, 0, kTokens, [](FusedQkvArgs args) {
        args.activations = Activations::int8;
        reference::fused_qkv_matmul(args);
      });
      expect_close(all, want, format.name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, PackedWeights, kEveryTarget, target_name);

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::runtime, "", "", "", "nothing was thrown"};
}

TEST(Int8Activations, ArePackedWeightsOnlyAndIntegersOnly) {
  const auto try_with = [](const WeightKind& format) {
    const ProjectionWeight weight = make_weight(format);
    const TestCache cache({.cache_lengths = {5},
                           .new_tokens = {1},
                           .row_format = RowFormat::uniform(DType::f32, kWidth),
                           .page_size = 16,
                           .num_kv_heads = kHeads});
    const HostTensor x = HostTensor::random(DType::f32, {1, kHidden}, 1);
    const HostTensor out(DType::f32, {1, kQueryDim});
    return supports({.x = x.view(),
                     .row_offsets = cache.row_offsets(),
                     .weight = weight.plain,
                     .cache = cache.view(),
                     .layer = 1,
                     .out = out.view(),
                     .activations = Activations::int8});
  };
  EXPECT_EQ(error_of([&] { try_with(kind_named("f32")); }).argument(), "activations");
  // A plain weight: no fast kernel, but the reference.
  EXPECT_EQ(try_with(kind_named("int4_32")).kernel, "reference/fused_qkv_matmul");
}

TEST(PackWeight, NamesWhatIsWrong) {
  ProjectionWeight weight = make_weight(kind_named("f32"));
  const std::int64_t bytes = packed_bytes(weight.plain);
  HostTensor storage(DType::u8, {bytes + 128});
  auto* start = storage.view().as<std::byte>();
  start += (64 - reinterpret_cast<std::uintptr_t>(start) % 64) % 64;
  const auto pack = [&](std::byte* at, std::int64_t size) {
    return error_of(
        [&] { pack_weight(weight.plain, TensorView::contiguous(at, DType::u8, {size})); });
  };
  const Error small = pack(start, bytes - 1);
  EXPECT_EQ(small.argument(), "storage");
  EXPECT_EQ(small.expected(), "u8 of at least " + std::to_string(bytes) + " bytes");
  EXPECT_EQ(pack(start + 8, bytes).expected(), "on a border of 64 bytes");

  const Weight packed =
      pack_weight(weight.plain, TensorView::contiguous(start, DType::u8, {bytes}));
  EXPECT_EQ(error_of([&] { packed_bytes(packed); }).expected(), "a plain weight");
  Weight wrong = weight.plain;
  wrong.format = WeightFormat::fp8;
  EXPECT_EQ(error_of([&] { packed_bytes(wrong); }).op(), "pack_weight");
  Context nobody;
  nobody.kernel = "cuda";
  EXPECT_EQ(error_of([&] { packed_bytes(weight.plain, nobody); }).code(), ErrorCode::unsupported);
}

}  // namespace
}  // namespace quire::cpu
