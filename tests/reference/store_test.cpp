// SPDX-License-Identifier: Apache-2.0
#include "reference/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "support/cache_builder.h"
#include "support/cache_snapshot.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::CacheSnapshot;
using test::HostTensor;
using test::TestCache;

KvLayerView side_of(const TestCache& cache, std::int64_t layer, KvSide side) {
  return side == KvSide::key ? cache.view().key(layer) : cache.view().value(layer);
}

StoreArgs args_for(const HostTensor& x, const TestCache& cache, std::int64_t layer = 0,
                   KvSide side = KvSide::key) {
  return {.x = x.view(),
          .row_offsets = cache.row_offsets(),
          .cache = cache.view(),
          .layer = layer,
          .side = side};
}

class StoreDTypes : public testing::TestWithParam<std::tuple<DType, DType, KvSide>> {};

TEST_P(StoreDTypes, RowsLandAtTheirPositionsRounded) {
  const auto [x_dtype, cache_dtype, side] = GetParam();
  const TestCache cache({.cache_lengths = {3, 9, 0},
                         .new_tokens = {2, 0, 5},
                         .row_format = RowFormat::uniform(cache_dtype, 8)});
  const HostTensor x = HostTensor::random(x_dtype, {7, 2, 8}, 4, 600.0);
  CacheSnapshot before(cache);
  before.allow_new_tokens(1, side);
  reference::store(args_for(x, cache, 1, side));
  EXPECT_EQ(before.unexpected_changes(), 0);
  for (const Token& token : tokens_of(cache.row_offsets(), cache.view())) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int32_t d = 0; d < 8; ++d) {
        EXPECT_EQ(side_of(cache, 1, side).load(token.sequence, head, token.position, d),
                  round_to(cache_dtype, x.at({token.index, head, d})));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Combinations, StoreDTypes,
                         testing::Combine(testing::Values(DType::f32, DType::f16, DType::bf16),
                                          testing::Values(DType::f32, DType::bf16, DType::fp8_e4m3,
                                                          DType::fp8_e5m2),
                                          testing::Values(KvSide::key, KvSide::value)),
                         [](const auto& test) {
                           return std::string(name(std::get<0>(test.param))) + "_to_" +
                                  std::string(name(std::get<1>(test.param))) +
                                  (std::get<2>(test.param) == KvSide::key ? "_key" : "_value");
                         });

struct FormatCase {
  std::string name;
  RowFormat format;
  double relative_error;  // of the granule's amax
};

class StoreFormats : public testing::TestWithParam<FormatCase> {};

TEST_P(StoreFormats, RoundTripStaysWithinHalfAStep) {
  const FormatCase& c = GetParam();
  const TestCache cache({.cache_lengths = {3},
                         .new_tokens = {6},
                         .row_format = c.format,
                         .num_layers = 2,
                         .num_kv_heads = 1,
                         .is_mla = true});
  const std::int64_t width = c.format.width();
  const HostTensor x = HostTensor::random(DType::f32, {6, 1, width}, 8, 50.0);
  reference::store(args_for(x, cache, 1));
  for (std::int64_t t = 0; t < 6; ++t) {
    const std::vector<double> row = decode_row(PagedKvOperand(cache.view().key(1)), 0, 0, 3 + t);
    for (std::int64_t d = 0; d < width; ++d) {
      EXPECT_NEAR(row[static_cast<std::size_t>(d)], x.at({t, 0, d}), c.relative_error * 50.0);
    }
  }
}

// e4m3 near its top has steps of 32 in 448, e5m2 of 8192 in 57344, i8 of 1 in 127. Half a step
// each.
INSTANTIATE_TEST_SUITE_P(
    Formats, StoreFormats,
    testing::Values(
        FormatCase{"fp8_per_row", RowFormat::scaled(DType::fp8_e4m3, 64, 64), 16.1 / 448},
        FormatCase{"fp8_per_16", RowFormat::scaled(DType::fp8_e4m3, 64, 16), 16.1 / 448},
        FormatCase{"e5m2_per_16", RowFormat::scaled(DType::fp8_e5m2, 64, 16), 4096.5 / 57344},
        FormatCase{"i8_per_row", RowFormat::scaled(DType::i8, 64, 64), 0.501 / 127},
        FormatCase{"i8_per_32_bf16", RowFormat::scaled(DType::i8, 64, 32, DType::bf16),
                   0.801 / 127},
        FormatCase{"mla_640", RowFormat::mla_fp8_token(), 16.1 / 448},
        FormatCase{"mla_656", RowFormat::mla_fp8_block(), 16.1 / 448},
        // Up to twice the scale that the granule needs.
        FormatCase{"mla_576_e8m0", RowFormat::mla_fp8_e8m0(), 32.1 / 448}),
    [](const auto& test) { return test.param.name; });

TEST(Store, ReadyCodesAreStoredAsTheyAreAndScalesLeftAlone) {
  TestCache cache({.new_tokens = {2}, .row_format = RowFormat::scaled(DType::fp8_e4m3, 8, 8)});
  const HostTensor codes = HostTensor::random(DType::fp8_e4m3, {2, 2, 8}, 4, 100.0);
  const CacheSnapshot before(cache);
  reference::store(args_for(codes, cache, 1));
  EXPECT_FALSE(before.scales_changed());
  for (std::int64_t t = 0; t < 2; ++t) {
    for (std::int32_t d = 0; d < 8; ++d) {
      EXPECT_EQ(cache.view().key(1).load_quantized(0, 1, t, d), codes.at({t, 1, d}));
    }
  }
}

// Slots as an engine would work them out of the page table; -1 for tokens that are skipped.
std::vector<std::int64_t> slots_of(const TestCache& cache,
                                   const std::vector<std::int64_t>& skipped) {
  std::vector<std::int64_t> slots;
  const PagedKVCache view = cache.view();
  for (const Token& token : tokens_of(cache.row_offsets(), view)) {
    const PageSlot place = view.pages().find(token.sequence, token.position);
    const bool is_skipped = std::ranges::find(skipped, token.index) != skipped.end();
    slots.push_back(is_skipped ? -1 : place.page * view.page_size() + place.slot);
  }
  return slots;
}

TEST(StoreBySlots, KeysAndValuesLandWhereTheSlotsSay) {
  const TestCache cache({.cache_lengths = {3, 9, 0}, .new_tokens = {2, 0, 5}});
  const HostTensor k = HostTensor::random(DType::f32, {7, 2, 8}, 4);
  const HostTensor v = HostTensor::random(DType::f32, {7, 2, 8}, 5);
  std::vector<std::int64_t> slots = slots_of(cache, {1, 4});
  StoreArgs args{.x = k.view(), .cache = {.blocks = cache.view().blocks}, .layer = 1};
  args.value = v.view();
  args.slots = TensorView::contiguous(slots.data(), DType::i64, {7});
  CacheSnapshot before(cache);
  for (const Token& token : tokens_of(cache.row_offsets(), cache.view())) {
    if (token.index == 1 || token.index == 4) continue;
    for (const std::int64_t head : {0, 1}) {
      before.allow_row(1, KvSide::key, token.sequence, head, token.position);
      before.allow_row(1, KvSide::value, token.sequence, head, token.position);
    }
  }
  reference::store(args);
  EXPECT_EQ(before.unexpected_changes(), 0);
  const std::int64_t page_size = cache.view().page_size();
  for (std::int64_t token = 0; token < 7; ++token) {
    const std::int64_t slot = slots[static_cast<std::size_t>(token)];
    if (slot < 0) continue;
    for (std::int64_t d = 0; d < 8; ++d) {
      const TensorView& blocks = args.cache.blocks;
      EXPECT_EQ(blocks.load({slot / page_size, 0, 1, slot % page_size, 1, d}), k.at({token, 1, d}));
      EXPECT_EQ(blocks.load({slot / page_size, 1, 1, slot % page_size, 1, d}), v.at({token, 1, d}));
    }
  }
}

TEST(StoreBySlots, SlotsOutsideOfThePoolAreDropped) {
  const TestCache cache({.new_tokens = {4}});
  const HostTensor x = HostTensor::random(DType::f32, {4, 2, 8}, 4);
  const std::int64_t end = cache.view().num_pages() * cache.view().page_size();
  std::vector<std::int64_t> slots{end, -1, std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min()};
  StoreArgs args{.x = x.view(), .cache = {.blocks = cache.view().blocks}};
  args.slots = TensorView::contiguous(slots.data(), DType::i64, {4});
  const CacheSnapshot before(cache);
  reference::store(args);
  EXPECT_EQ(before.changes(), 0);
}

TEST(Store, ReadsTransposedInput) {
  const TestCache cache({.new_tokens = {3}});
  const HostTensor x = HostTensor::random(DType::f32, {2, 3, 8}, 4);  // [heads, tokens, row]
  StoreArgs args = args_for(x, cache);
  std::swap(args.x.shape[0], args.x.shape[1]);
  std::swap(args.x.strides[0], args.x.strides[1]);
  reference::store(args);
  EXPECT_EQ(cache.view().key(0).load(0, 1, 2, 5), x.at({1, 2, 5}));
}

TEST(Store, UnassignedPagesAreDropped) {
  TestCache cache({.cache_lengths = {2}, .new_tokens = {4}});
  cache.unassign(0, 1);
  const HostTensor x = HostTensor::filled(DType::f32, {4, 2, 8}, 1.0);
  CacheSnapshot before(cache);
  before.allow_new_tokens(0, KvSide::key);
  reference::store(args_for(x, cache));
  EXPECT_EQ(before.unexpected_changes(), 0);
  EXPECT_EQ(cache.view().key(0).load(0, 0, 3, 0), 1.0);
}

TEST(Store, WithoutTokensNothingChanges) {
  const TestCache cache({.cache_lengths = {5, 2}, .new_tokens = {0, 0}});
  const HostTensor x(DType::f32, {0, 2, 8});
  const CacheSnapshot before(cache);
  reference::store(args_for(x, cache));
  EXPECT_EQ(before.changes(), 0);
}

class StoreScales : public testing::TestWithParam<std::tuple<std::int32_t, bool, KvSide>> {};

TEST_P(StoreScales, EachSlotLandsInItsPlace) {
  const auto [granularity, own_pages, side] = GetParam();
  const TestCache cache({.cache_lengths = {3, 1},
                         .new_tokens = {2, 4},
                         .row_format = RowFormat::scaled(DType::fp8_e4m3, 8, granularity),
                         .own_scale_pages = own_pages});
  const std::int64_t slots = (8 + granularity - 1) / granularity;
  const HostTensor scales = HostTensor::random(DType::f32, {6, 2, slots}, 4);
  const CacheSnapshot before(cache);
  reference::store_scales({.scales = scales.view(),
                           .row_offsets = cache.row_offsets(),
                           .cache = cache.view(),
                           .layer = 1,
                           .side = side});
  EXPECT_EQ(before.changes(), 0);
  std::int64_t written = 0;
  for (const Token& token : tokens_of(cache.row_offsets(), cache.view())) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int32_t d = 0; d < 8; ++d, ++written) {
        EXPECT_EQ(side_of(cache, 1, side).load_scale(token.sequence, head, token.position, d),
                  scales.at({token.index, head, d / granularity}));
      }
    }
  }
  EXPECT_EQ(written, 6 * 2 * 8);
  EXPECT_TRUE(std::isnan(side_of(cache, 1, side).load_scale(0, 0, 2, 0)));  // cached before
  EXPECT_TRUE(std::isnan(side_of(cache, 0, side).load_scale(0, 0, 3, 0)));  // another layer
}

INSTANTIATE_TEST_SUITE_P(Slots, StoreScales,
                         testing::Combine(testing::Values(8, 4, 3, 1), testing::Bool(),
                                          testing::Values(KvSide::key, KvSide::value)),
                         [](const auto& test) {
                           return "per_" + std::to_string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) ? "_own_pages" : "") +
                                  (std::get<2>(test.param) == KvSide::key ? "_key" : "_value");
                         });

TEST(StoreScales, UnassignedPagesAreDropped) {
  TestCache cache(
      {.cache_lengths = {3}, .new_tokens = {2}, .row_format = RowFormat::scaled(DType::i8, 8, 8)});
  cache.unassign(0, 1);
  const HostTensor scales = HostTensor::of(DType::f32, {2, 2, 1}, {1, 2, 3, 4});
  reference::store_scales(
      {.scales = scales.view(), .row_offsets = cache.row_offsets(), .cache = cache.view()});
  EXPECT_EQ(cache.view().key(0).load_scale(0, 1, 3, 0), 2.0);
  EXPECT_EQ(cache.view().key(0).load_scale(0, 1, 4, 0), 0.0);
}

}  // namespace
}  // namespace quire::reference
