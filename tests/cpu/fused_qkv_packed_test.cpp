// SPDX-License-Identifier: Apache-2.0
// Packed weights: the same bits as plain ones, for every format, on every target that can run here,
// whatever the batch and the number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/row_target.h"
#include "cpu/runtime/target.h"
#include "quire/element.h"
#include "quire/error.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "quire/pack_weight.h"
#include "reference/fused_qkv_matmul.h"
#include "support/cache_builder.h"
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

struct Format {
  std::string name;
  WeightFormat format;
  DType dtype;         // dense, fp8
  std::int64_t group;  // int4, gptq, awq; fp8: rows of the scale
  bool has_zeros;
  bool has_perm;
};

const Format kFormats[] = {
    {"f32", WeightFormat::dense, DType::f32, 0, false, false},
    {"f16", WeightFormat::dense, DType::f16, 0, false, false},
    {"bf16", WeightFormat::dense, DType::bf16, 0, false, true},
    {"fp8_tensor", WeightFormat::fp8, DType::fp8_e4m3, 1, false, false},
    {"fp8_channel", WeightFormat::fp8, DType::fp8_e5m2, kColumns, false, false},
    {"fp8_block", WeightFormat::fp8, DType::fp8_e4m3, (kColumns + 127) / 128, false, false},
    {"int4_32", WeightFormat::int4, DType::u4, 32, true, false},
    {"int4_64", WeightFormat::int4, DType::u4, 64, false, true},
    {"gptq_128", WeightFormat::gptq, DType::i32, 128, true, true},
    {"gptq_v2_32", WeightFormat::gptq_v2, DType::i32, 32, true, false},
    {"awq_64", WeightFormat::awq, DType::i32, 64, true, false},
    {"q4_0", WeightFormat::q4_0, DType::u8, 0, false, false},
    {"q8_0", WeightFormat::q8_0, DType::u8, 0, false, false},
    {"q4_k", WeightFormat::q4_k, DType::u8, 0, false, false},
    {"q6_k", WeightFormat::q6_k, DType::u8, 0, false, false},
};

void fill_randomly(HostTensor& tensor, std::uint64_t seed, int mask = 255) {
  for (std::byte& byte : tensor.bytes()) {
    const double uniform = test::next_uniform(seed);  // −1 … 1
    byte = static_cast<std::byte>(static_cast<int>(127.9 + 127.9 * uniform) & mask);
  }
}

struct GgufBlock {
  std::int64_t columns, bytes;
  std::vector<std::int64_t> factors;
};

GgufBlock gguf_block(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_0:
      return {32, 18, {0}};
    case WeightFormat::q8_0:
      return {32, 34, {0}};
    case WeightFormat::q4_k:
      return {256, 144, {0, 2}};
    default:
      return {256, 210, {208}};
  }
}

// Owns a weight [kColumns, kHidden].
struct TestWeight {
  HostTensor data, scale, zeros, perm, storage;
  Weight plain;

  explicit TestWeight(const Format& format) {
    plain.format = format.format;
    if (format.format == WeightFormat::dense) {
      data = HostTensor::random(format.dtype, {kColumns, kHidden}, 1, 0.1);
    } else if (format.format == WeightFormat::fp8) {
      data = HostTensor::random(format.dtype, {kColumns, kHidden}, 1, 100.0);
      const bool is_block = format.group != 1 && format.group != kColumns;
      scale = HostTensor::random(DType::f32, {format.group, is_block ? kHidden / 128 : 1}, 2, 0.1);
      plain.scale = scale.view();
    } else if (format.format >= WeightFormat::q4_0) {
      fill_gguf(format.format);
    } else {
      fill_groups(format);
    }
    plain.data = data.view();
    if (!format.has_perm) return;
    perm = HostTensor(DType::i32, {kHidden});
    auto* order = perm.view().as<std::int32_t>();
    std::iota(order, order + kHidden, 0);
    for (std::int64_t k = 0; k < kHidden; ++k) std::swap(order[k], order[k * 31 % kHidden]);
    plain.perm = perm.view();
  }

  void fill_gguf(WeightFormat format) {
    const GgufBlock block = gguf_block(format);
    data = HostTensor(DType::u8, {kColumns, kHidden / block.columns * block.bytes});
    fill_randomly(data, 3);
    std::uint64_t seed = 4;
    for (std::int64_t at = 0; at < data.view().numel(); at += block.bytes) {
      for (const std::int64_t offset : block.factors) {
        store_element(data.view().as<std::byte>() + at + offset, DType::f16, 0,
                      0.01 * test::next_uniform(seed));
      }
    }
  }

  void fill_groups(const Format& format) {
    const std::int64_t groups = kHidden / format.group;
    const bool is_int4 = format.format == WeightFormat::int4;
    const bool is_awq = format.format == WeightFormat::awq;
    data = is_int4  ? HostTensor(DType::u4, {kColumns, kHidden})
           : is_awq ? HostTensor(DType::i32, {kHidden, kColumns / 8})
                    : HostTensor(DType::i32, {kHidden / 8, kColumns});
    fill_randomly(data, 5);
    scale = is_int4 ? HostTensor::random(DType::f16, {kColumns, groups}, 6, 0.1)
                    : HostTensor::random(DType::bf16, {groups, kColumns}, 6, 0.1);
    plain.scale = scale.view();
    plain.group_size = format.group;
    if (!format.has_zeros) return;
    zeros = is_int4 ? HostTensor(DType::u8, {kColumns, groups})
                    : HostTensor(DType::i32, {groups, kColumns / 8});
    fill_randomly(zeros, 7, is_int4 ? 15 : 255);
    plain.zeros = zeros.view();
  }

  Weight packed(const Context& context) {
    const std::int64_t bytes = packed_bytes(plain, context);
    storage = HostTensor(DType::u8, {bytes + 64});
    auto* start = storage.view().as<std::byte>();
    start += (64 - reinterpret_cast<std::uintptr_t>(start) % 64) % 64;
    return pack_weight(plain, TensorView::contiguous(start, DType::u8, {bytes}), context);
  }
};

void expect_close(const std::vector<double>& have, const std::vector<double>& want,
                  const std::string& what) {
  double largest = 0.0;
  double error = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    error = std::max(error, std::abs(have[i] - want[i]));
  }
  EXPECT_LE(error, 2e-6 * largest) << what;  // fp32 sums of some hundred terms
  EXPECT_GT(largest, 0.0);
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
  for (const Format& format : kFormats) {
    TestWeight weight(format);
    const Weight packed = weight.packed(context(2));
    EXPECT_EQ(packed.rows(), kColumns);
    EXPECT_EQ(packed.columns(), kHidden);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const HostTensor x = HostTensor::random(dtype, {70, kHidden}, 9);
      for (const std::int64_t count : {1, 3, 40, 70}) {
        EXPECT_EQ(on_target(packed, x, 0, count, 2), on_target(weight.plain, x, 0, count, 2))
            << format.name << " with " << quire::name(dtype) << ", " << count << " tokens";
      }
    }
  }
}

TEST_P(PackedWeights, NeitherBatchNorThreadsChangeABit) {
  constexpr std::int64_t kTokens = 70;
  for (const Format& format : kFormats) {
    TestWeight weight(format);
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
  for (const Format& format : kFormats) {
    TestWeight weight(format);
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
  for (const Format& format : kFormats) {
    if (format.format < WeightFormat::int4 || format.format > WeightFormat::q8_0) continue;
    TestWeight weight(format);
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
  const auto try_with = [](const Format& format) {
    const TestWeight weight(format);
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
  EXPECT_EQ(error_of([&] { try_with(kFormats[0]); }).argument(), "activations");
  // A plain weight: no fast kernel, but the reference.
  EXPECT_EQ(try_with(kFormats[6]).kernel, "reference/fused_qkv_matmul");
}

TEST(PackWeight, NamesWhatIsWrong) {
  TestWeight weight(kFormats[0]);
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
  nobody.kernel = "hopper";
  EXPECT_EQ(error_of([&] { packed_bytes(weight.plain, nobody); }).code(), ErrorCode::unsupported);
}

}  // namespace
}  // namespace quire::cpu
