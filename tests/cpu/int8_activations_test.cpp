// SPDX-License-Identifier: Apache-2.0
// int8 activations: a token has the bits that it has alone, in every batch, on every engine that a target takes for
// few and for many tokens, and its codes are those of the reference where a quotient lies in the middle between two.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cpu/projection_weight.h"
#include "cpu/row_target.h"
#include "cpu/runtime/scratch.h"
#include "quire/ops/linear.h"
#include "reference/linear.h"
#include "support/expect_near.h"

namespace quire::cpu {
namespace {

using test::HostTensor;

constexpr std::int64_t kColumns = 40;  // ends inside panels of 16 and of 32

class Int8Activations : public RowTarget {
 protected:
  void SetUp() override {
    RowTarget::SetUp();
    was_poisoned_ = is_scratch_poisoned();
    poison_scratch(true);
  }
  void TearDown() override { poison_scratch(was_poisoned_); }

  static LinearArgs args_of(const Weight& weight, const HostTensor& x, std::int64_t first,
                            std::int64_t count, const HostTensor& out) {
    TensorView rows = x.view();
    rows.shape[0] = count;
    rows.data = rows.as<std::byte>() + bytes_for(rows.dtype, first * rows.strides[0]);
    return {.x = rows, .weight = weight, .out = out.view(), .activations = Activations::int8};
  }

  // Rows [first, first + count) of Y, as their bytes: NaN is compared too.
  std::vector<std::byte> bytes_of(const Weight& weight, const HostTensor& x, std::int64_t first,
                                  std::int64_t count, int threads) const {
    const HostTensor out(DType::f32, {count, weight.rows()});
    linear(args_of(weight, x, first, count, out), context(threads));
    return out.bytes();
  }

  // Every token alone, one after another.
  std::vector<std::byte> one_by_one(const Weight& weight, const HostTensor& x) const {
    std::vector<std::byte> all;
    for (std::int64_t token = 0; token < x.view().shape[0]; ++token) {
      const std::vector<std::byte> row = bytes_of(weight, x, token, 1, 1);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  static std::vector<std::byte> first_rows(const std::vector<std::byte>& all, std::int64_t rows,
                                           std::int64_t columns) {
    return {all.begin(), all.begin() + 4 * rows * columns};
  }

  bool was_poisoned_ = false;
};

// Depths on both sides of tile steps and depth blocks, the last one partial.
std::vector<std::int64_t> depths_of(const WeightKind& kind) {
  const std::int64_t unit = depth_unit(kind);
  std::vector<std::int64_t> depths;
  for (const std::int64_t depth :
       {unit, 3 * unit, std::int64_t{512}, 512 + unit, 1024 + 3 * unit}) {
    depths.push_back(depth);
  }
  return depths;
}

TEST_P(Int8Activations, ATokenHasTheSameBitsInEveryBatch) {
  constexpr std::int64_t kTokens = 70;
  for (const WeightKind& kind : kWeightKinds) {
    if (!takes_int8_activations(kind.format)) continue;
    for (const std::int64_t depth : depths_of(kind)) {
      SCOPED_TRACE(kind.name + ", K = " + std::to_string(depth));
      ProjectionWeight weight(kind, kColumns, depth);
      const Weight packed = weight.packed(context(2));
      const HostTensor x = HostTensor::random(DType::bf16, {kTokens, depth}, 21);
      const std::vector<std::byte> want = one_by_one(packed, x);
      for (std::int64_t count = 2; count <= kTokens; count += depth > 512 ? 7 : 1) {
        ASSERT_EQ(bytes_of(packed, x, 0, count, 1), first_rows(want, count, kColumns)) << count;
      }
      for (const int threads : {2, 3, 16}) {
        ASSERT_EQ(bytes_of(packed, x, 0, kTokens, threads), want) << threads << " threads";
      }
    }
  }
}

// Widths on both sides of a vector, of a panel, of two panels and of a range of columns.
TEST_P(Int8Activations, EveryWidthIsCut) {
  constexpr std::int64_t kTokens = 35;
  for (const char* name : {"int4_128", "q4_1", "q8_0"}) {
    const WeightKind& kind = kind_named(name);
    for (const std::int64_t columns : {8, 16, 24, 32, 48, 56, 72, 264, 328}) {
      ProjectionWeight weight(kind, columns, 128);
      const Weight packed = weight.packed(context(2));
      const HostTensor x = HostTensor::random(DType::f32, {kTokens, 128}, 22);
      ASSERT_EQ(bytes_of(packed, x, 0, kTokens, 3), one_by_one(packed, x)) << name << columns;
    }
  }
}

TEST_P(Int8Activations, MoreThanOneBlockOfTokens) {
  constexpr std::int64_t kTokens = 529;
  ProjectionWeight weight(kind_named("q4_1"), kColumns, 96);
  const Weight packed = weight.packed(context(2));
  const HostTensor x = HostTensor::random(DType::bf16, {kTokens, 96}, 23);
  const std::vector<std::byte> want = one_by_one(packed, x);
  for (const int threads : {1, 3}) EXPECT_EQ(bytes_of(packed, x, 0, kTokens, threads), want);
  EXPECT_EQ(bytes_of(packed, x, 0, 513, 2), first_rows(want, 513, kColumns));
}

// Rows of zeros, of one number, with NaN and infinities, near both ends of the exponents.
TEST_P(Int8Activations, ExtremeRowsStayInTheirPlace) {
  constexpr std::int64_t kTokens = 20;
  constexpr std::int64_t kDepth = 256;
  const HostTensor x = HostTensor::random(DType::f32, {kTokens, kDepth}, 24);
  auto* values = x.view().as<float>();
  const auto scale_row = [&](std::int64_t row, float factor) {
    for (std::int64_t k = 0; k < kDepth; ++k) values[row * kDepth + k] *= factor;
  };
  scale_row(1, 0.0f);
  scale_row(2, 0x1p-120f);
  scale_row(3, 0x1p-148f);
  scale_row(4, 0x1p120f);
  values[5 * kDepth + 3] = std::numeric_limits<float>::quiet_NaN();
  values[6 * kDepth + 130] = std::numeric_limits<float>::infinity();
  values[7 * kDepth + 131] = -std::numeric_limits<float>::infinity();
  for (std::int64_t k = 0; k < kDepth; ++k) values[8 * kDepth + k] = std::nanf("");
  for (const char* name : {"int4_32", "int4_128", "q5_1", "mxfp4"}) {
    ProjectionWeight weight(kind_named(name), kColumns, kDepth);
    const Weight packed = weight.packed(context(2));
    EXPECT_EQ(bytes_of(packed, x, 0, kTokens, 2), one_by_one(packed, x)) << name;
  }
}

// Quotients h + ½ and their neighbours: amax is 127 · 2^n, so scales are powers of two, and with scales of 1 all
// results are integers times one, which f32 holds.
TEST_P(Int8Activations, MiddlesBetweenCodesAreRoundedAsTheReferenceDoesIt) {
  constexpr std::int64_t kTokens = 24;
  constexpr std::int64_t kDepth = 128;
  for (const char* name : {"int4_32", "int4_128"}) {
    ProjectionWeight weight(kind_named(name), kColumns, kDepth);
    HostTensor ones =
        HostTensor::filled(DType::f32, {kColumns, kDepth / weight.plain.group_size}, 1.0);
    weight.plain.scale = ones.view();
    const Weight packed = weight.packed(context(2));
    const HostTensor x(DType::f32, {kTokens, kDepth});
    auto* values = x.view().as<float>();
    for (std::int64_t i = 0; i < kTokens * kDepth; ++i) {
      const float middle = static_cast<float>(i % 127) - 63.0f + 0.5f;
      const float next = std::nextafterf(middle, i % 3 == 0 ? 200.0f : -200.0f);
      values[i] = i % 32 == 0 ? 127.0f : i % 2 == 0 ? middle : next;
    }
    const HostTensor want(DType::f32, {kTokens, kColumns});
    reference::linear(args_of(weight.plain, x, 0, kTokens, want));
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{8}, kTokens}) {
      EXPECT_EQ(bytes_of(packed, x, 0, count, 2), first_rows(want.bytes(), count, kColumns))
          << name << ", " << count << " tokens";
    }
  }
}

TEST_P(Int8Activations, ManyTokensAgreeWithTheReference) {
  constexpr std::int64_t kTokens = 33;
  for (const WeightKind& kind : kWeightKinds) {
    if (!takes_int8_activations(kind.format)) continue;
    const std::int64_t depth = 512 + depth_unit(kind);
    ProjectionWeight weight(kind, kColumns, depth);
    const Weight packed = weight.packed(context(2));
    const HostTensor x = HostTensor::random(DType::bf16, {kTokens, depth}, 25);
    const HostTensor want(DType::f32, {kTokens, kColumns});
    const HostTensor have(DType::f32, {kTokens, kColumns});
    reference::linear(args_of(weight.plain, x, 0, kTokens, want));
    linear(args_of(packed, x, 0, kTokens, have), context(2));
    SCOPED_TRACE(kind.name);
    const double largest = test::largest_magnitude(want.values());
    ASSERT_GT(largest, 0.0);
    test::expect_near(have.values(), want.values(), 2e-6 * largest);  // fp32 sums
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Int8Activations, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
