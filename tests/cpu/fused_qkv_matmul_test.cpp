// SPDX-License-Identifier: Apache-2.0
// What the cases of `quire check` do not show: bits that must not depend on threads or batch, and
// sizes that cross the kernels' blocks. Every target that can run here is forced in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cpu/row_target.h"
#include "cpu/runtime/target.h"
#include "quire/element.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "reference/fused_qkv_matmul.h"
#include "support/cache_builder.h"
#include "support/cache_snapshot.h"
#include "support/expect_near.h"
#include "support/host_tensor.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::CacheSnapshot;
using test::HostTensor;
using test::TestCache;

constexpr std::int64_t kHidden = 160;  // more than one depth block of every scaled format
constexpr std::int64_t kQueryDim = 72;
constexpr std::int64_t kHeads = 3;
constexpr std::int32_t kWidth = 24;
constexpr std::int64_t kCacheColumns = 2 * kHeads * kWidth;
constexpr std::int64_t kColumns = kQueryDim + kCacheColumns;

struct Format {
  std::string name;
  DType activation;
  WeightFormat weight;
  DType weight_dtype;
};

const Format kFormats[] = {
    {"bf16", DType::bf16, WeightFormat::dense, DType::bf16},
    {"f32", DType::f32, WeightFormat::dense, DType::f32},
    {"f16", DType::f16, WeightFormat::dense, DType::f16},
    {"fp8_block", DType::bf16, WeightFormat::fp8, DType::fp8_e4m3},
    {"int4", DType::bf16, WeightFormat::int4, DType::u4},
};

// Owns a weight [kColumns, kHidden].
struct TestWeight {
  HostTensor data, scale, zeros;
  Weight weight;

  explicit TestWeight(const Format& format) {
    const double amplitude = format.weight == WeightFormat::dense ? 0.1 : 100.0;
    weight.format = format.weight;
    if (format.weight == WeightFormat::int4) {
      data = HostTensor(DType::u4, {kColumns, kHidden});
      std::uint64_t state = 5;
      for (std::byte& byte : data.bytes()) {
        byte = static_cast<std::byte>(static_cast<int>(127.9 + 127.9 * test::next_uniform(state)));
      }
      scale = HostTensor::random(DType::f16, {kColumns, kHidden / 32}, 2, 0.1);
      zeros = HostTensor::filled(DType::u8, {kColumns, kHidden / 32}, 7);
      weight.group_size = 32;
      weight.zeros = zeros.view();
    } else {
      data = HostTensor::random(format.weight_dtype, {kColumns, kHidden}, 1, amplitude);
    }
    if (format.weight == WeightFormat::fp8) {
      scale = HostTensor::random(DType::f32, {(kColumns + 127) / 128, (kHidden + 127) / 128}, 2);
    }
    weight.data = data.view();
    if (format.weight != WeightFormat::dense) weight.scale = scale.view();
  }
};

// Leaves out the first rows of a matrix.
void skip_rows(TensorView& matrix, std::int64_t count) {
  matrix.data = matrix.as<std::byte>() + bytes_for(matrix.dtype, count * matrix.strides[0]);
  matrix.shape[0] -= count;
}

CacheOptions cache_for(std::uint32_t tokens, DType dtype) {
  return {.cache_lengths = {5},
          .new_tokens = {tokens},
          .row_format = RowFormat::uniform(dtype, kWidth),
          .page_size = 16,
          .num_kv_heads = kHeads};
}

struct Result {
  std::vector<std::byte> out;
  std::vector<std::byte> rows;  // K then V of every token, by sequence position

  bool operator==(const Result&) const = default;
};

class FusedQkvOnCpu : public RowTarget {
 protected:
  // Tokens [first, first + count) of x, on their own.
  Result run(const Format& format, const HostTensor& x, std::int64_t first, std::int64_t count,
             int threads) const {
    return run(format, TestWeight(format).weight, x, first, count, threads);
  }
  Result run(const Format& format, const Weight& weight, const HostTensor& x, std::int64_t first,
             std::int64_t count, int threads) const {
    const TestCache cache(cache_for(static_cast<std::uint32_t>(count), format.activation));
    const HostTensor out(format.activation, {count, weight.rows() - kCacheColumns});
    TensorView part = x.view();
    part.data = part.as<std::byte>() + bytes_for(part.dtype, first * part.strides[0]);
    part.shape[0] = count;
    const FusedQkvArgs args{.x = part,
                            .row_offsets = cache.row_offsets(),
                            .weight = weight,
                            .cache = cache.view(),
                            .layer = 1,
                            .out = out.view()};
    EXPECT_EQ(supports(args, context(threads)).kernel,
              context(threads).kernel + "fused_qkv_matmul");
    fused_qkv_matmul(args, context(threads));
    Result result{.out = out.bytes(), .rows = {}};
    for (std::int64_t token = 0; token < count; ++token) {
      for (const bool value : {false, true}) {
        for (std::int64_t head = 0; head < kHeads; ++head) {
          const std::int64_t offset = cache.row_offset_bytes(1, value, 0, head, 5 + token);
          const auto start = cache.block_bytes().begin() + offset;
          result.rows.insert(result.rows.end(), start,
                             start + bytes_for(format.activation, kWidth));
        }
      }
    }
    return result;
  }
};

TEST_P(FusedQkvOnCpu, ThreadsDoNotChangeABit) {
  for (const Format& format : kFormats) {
    const HostTensor x = HostTensor::random(format.activation, {70, kHidden}, 3);
    const Result one = run(format, x, 0, 70, 1);
    for (const int threads : {2, 3, 16}) {
      EXPECT_EQ(run(format, x, 0, 70, threads), one) << format.name << ", " << threads;
    }
  }
}

// 530 tokens cross the kernels' token block and take the path for many rows; one token does not.
TEST_P(FusedQkvOnCpu, TheBatchDoesNotChangeARow) {
  constexpr std::int64_t kTokens = 530;
  for (const Format& format : kFormats) {
    const HostTensor x = HostTensor::random(format.activation, {kTokens, kHidden}, 4);
    const Result all = run(format, x, 0, kTokens, 2);
    const std::size_t out_bytes = all.out.size() / kTokens;
    const std::size_t row_bytes = all.rows.size() / kTokens;
    for (const std::int64_t token : {0, 1, 63, 64, 509, 510, 511, 512, 529}) {
      const Result one = run(format, x, token, 1, 1);
      const auto place = static_cast<std::size_t>(token);
      EXPECT_TRUE(
          std::ranges::equal(one.out, std::span(all.out).subspan(place * out_bytes, out_bytes)))
          << format.name << ", token " << token;
      EXPECT_TRUE(
          std::ranges::equal(one.rows, std::span(all.rows).subspan(place * row_bytes, row_bytes)))
          << format.name << ", token " << token;
    }
  }
}

TEST_P(FusedQkvOnCpu, ABadTokenStaysAlone) {
  for (const Format& format : kFormats) {
    HostTensor x = HostTensor::random(format.activation, {20, kHidden}, 6);
    const Result clean = run(format, x, 0, 20, 2);
    for (std::int64_t k = 0; k < kHidden; ++k) x.view().store({7, k}, NAN);
    const Result dirty = run(format, x, 0, 20, 2);
    const std::size_t bytes = clean.out.size() / 20;
    for (std::size_t token = 0; token < 20; ++token) {
      const auto before = std::span(clean.out).subspan(token * bytes, bytes);
      const auto after = std::span(dirty.out).subspan(token * bytes, bytes);
      EXPECT_EQ(std::ranges::equal(before, after), token != 7) << format.name << ", " << token;
    }
  }
}

// Against the oracle where no case of the tool goes: many tokens, several ranges of columns.
TEST_P(FusedQkvOnCpu, ManyTokensAgreeWithTheReference) {
  constexpr std::uint32_t kTokens = 520;
  for (const Format& format : kFormats) {
    const TestWeight weight(format);
    const HostTensor x = HostTensor::random(format.activation, {kTokens, kHidden}, 8);
    const auto run_on = [&](auto&& op) {
      const TestCache cache(cache_for(kTokens, DType::f32));
      const HostTensor out(DType::f32, {kTokens, kQueryDim});
      CacheSnapshot before(cache);
      before.allow_new_tokens(1, KvSide::key);
      before.allow_new_tokens(1, KvSide::value);
      op(FusedQkvArgs{.x = x.view(),
                      .row_offsets = cache.row_offsets(),
                      .weight = weight.weight,
                      .cache = cache.view(),
                      .layer = 1,
                      .out = out.view()});
      EXPECT_EQ(before.unexpected_changes(), 0);
      std::vector<double> values = out.values();
      for (std::int64_t token = 0; token < kTokens; ++token) {
        for (std::int32_t column = 0; column < kWidth; ++column) {
          values.push_back(cache.view().key(1).load(0, 1, 5 + token, column));
          values.push_back(cache.view().value(1).load(0, 2, 5 + token, column));
        }
      }
      return values;
    };
    const std::vector<double> want =
        run_on([](const FusedQkvArgs& args) { reference::fused_qkv_matmul(args); });
    const std::vector<double> have =
        run_on([&](const FusedQkvArgs& args) { fused_qkv_matmul(args, context(2)); });
    SCOPED_TRACE(format.name);
    const double largest = test::largest_magnitude(want);
    EXPECT_GT(largest, 0.0);
    test::expect_near(have, want, 2e-6 * largest);  // fp32 sums of some hundred terms
  }
}

// A weight without rows of Wq: out is [tokens, 0], and K and V are what they are beside a Q.
TEST_P(FusedQkvOnCpu, KeysAndValuesAlone) {
  for (const Format& format : kFormats) {
    if (format.weight == WeightFormat::fp8) continue;  // its blocks of 128 rows begin with Q
    const TestWeight whole(format);
    Weight rest = whole.weight;
    skip_rows(rest.data, kQueryDim);
    if (rest.scale) skip_rows(*rest.scale, kQueryDim);
    if (rest.zeros) skip_rows(*rest.zeros, kQueryDim);
    for (const std::int64_t tokens : {1, 2, 20}) {
      const HostTensor x = HostTensor::random(format.activation, {tokens, kHidden}, 12);
      const Result alone = run(format, rest, x, 0, tokens, 2);
      EXPECT_EQ(alone.rows, run(format, x, 0, tokens, 2).rows)
          << format.name << ", " << tokens << " tokens";
      EXPECT_TRUE(alone.out.empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FusedQkvOnCpu, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
