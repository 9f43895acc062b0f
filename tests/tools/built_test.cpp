// SPDX-License-Identifier: Apache-2.0
// What a case becomes in memory: the same logical problem in two layouts, everything else poisoned.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "tools/case/mask_spec.h"
#include "tools/case_text.h"

namespace quire::tools {
namespace {

const Buffer& buffer_of(const Built& built, const std::string& name) {
  for (const Buffer& buffer : built.memory.buffers()) {
    if (buffer.name == name) return buffer;
  }
  throw std::runtime_error("no buffer " + name);
}

struct LoneCache {
  Memory memory;
  CacheSpec spec;
  Lengths lengths;
  PagedKVCache view;
};

LoneCache build(const nlohmann::json& object, Layout layout) {
  LoneCache cache;
  const Fields fields(object, "test");
  cache.lengths = read_lengths(fields);
  cache.spec = read_cache(fields, cache.lengths, false);
  if (layout == Layout::contiguous) cache.spec = cache.spec.contiguous_twin(cache.lengths);
  cache.view = build_cache(cache.memory, cache.spec, cache.lengths, Contents::cached_and_new, 7);
  return cache;
}

TEST(BuiltCache, TwinHoldsTheSameRows) {
  const LoneCache paged = build(small_attention(), Layout::requested);
  const LoneCache flat = build(small_attention(), Layout::contiguous);
  EXPECT_EQ(paged.view.page_size(), 4);
  EXPECT_EQ(flat.view.page_size(), 7);
  EXPECT_EQ(flat.view.num_layers(), 1);
  for (std::int64_t b = 0; b < 3; ++b) {
    for (std::int64_t token = 0; token < paged.lengths.keys(b); ++token) {
      for (std::int64_t head = 0; head < 2; ++head) {
        const std::byte* left = paged.view.value(1).row(b, token, head);
        const std::byte* right = flat.view.value(0).row(b, token, head);
        ASSERT_EQ(std::memcmp(left, right, 32), 0) << b << " " << token << " " << head;
      }
    }
  }
}

TEST(BuiltCache, NeighbouringRowsDiffer) {
  const LoneCache cache = build(small_attention(), Layout::requested);
  const KvLayerView key = cache.view.key(1);
  EXPECT_NE(std::memcmp(key.row(0, 0, 0), key.row(0, 0, 1), 32), 0);
  EXPECT_NE(std::memcmp(key.row(0, 0, 0), key.row(0, 1, 0), 32), 0);
  EXPECT_NE(std::memcmp(key.row(0, 0, 0), key.row(2, 0, 0), 32), 0);
  EXPECT_NE(std::memcmp(key.row(0, 0, 0), cache.view.value(1).row(0, 0, 0), 32), 0);
}

TEST(BuiltCache, SpoiledValuesAndInfinitePoisonStandWhereTheyShould) {
  nlohmann::json object = small_attention();
  object["cache"]["poison_number"] = "infinity";
  object["cache"]["nan_values"] = {{0, 2}};
  object["cache"]["infinite_values"] = {{2, 1}};
  for (const Layout layout : {Layout::requested, Layout::contiguous}) {
    const LoneCache cache = build(object, layout);
    const KvLayerView value = cache.view.value(cache.spec.layer);
    for (const std::int64_t head : {0, 1}) {
      EXPECT_TRUE(std::isnan(value.load(0, head, 2, 15)));
      EXPECT_TRUE(std::isinf(value.load(2, head, 1, 0)));
      EXPECT_TRUE(std::isfinite(value.load(0, head, 1, 0)));
      EXPECT_TRUE(std::isfinite(cache.view.key(cache.spec.layer).load(0, head, 2, 0)));
    }
  }
  const LoneCache paged = build(object, Layout::requested);
  EXPECT_TRUE(std::isinf(paged.view.key(1).load(0, 0, 7, 0))) << "past the end";
  EXPECT_TRUE(std::isinf(paged.view.key(0).load(0, 0, 0, 0))) << "another layer";
  object["cache"]["nan_values"] = {{0, 7}};
  EXPECT_NE(parse_error(object).find("nan_values"), std::string::npos);
}

TEST(BuiltCache, PageTailsAndOtherLayersAreNan) {
  const LoneCache cache = build(small_attention(), Layout::requested);
  // Sequence 0 has 7 keys on two pages of 4: row 3 of its second page is nobody's.
  const KvLayerView key = cache.view.key(1);
  EXPECT_TRUE(std::isnan(key.load(0, 0, 7, 0)));
  EXPECT_FALSE(std::isnan(key.load(0, 0, 6, 0)));
  EXPECT_TRUE(std::isnan(cache.view.key(0).load(0, 0, 0, 0)));
}

TEST(BuiltCache, PoisonOfAnInteger8CacheIsTheExtremeCode) {
  nlohmann::json object = small_attention();
  object["cache"]["dtype"] = "i8";
  object["cache"]["row_format"] = "scaled";
  const LoneCache cache = build(object, Layout::requested);
  EXPECT_EQ(cache.view.key(1).load_quantized(0, 0, 7, 0), -128.0);
  EXPECT_TRUE(std::isnan(cache.view.key(1).load_scale(0, 0, 7, 0)));
}

TEST(BuiltCache, ColumnsPastTheEndHoldSentinelsAndForeignPages) {
  nlohmann::json object = small_attention();
  object["cache"]["spare_columns"] = 4;
  const LoneCache cache = build(object, Layout::requested);
  const auto* table = cache.view.page_table.as<std::uint32_t>();
  std::set<std::uint32_t> own(table, table + 2);
  std::set<std::uint32_t> padding(table + 2, table + cache.view.max_pages());
  EXPECT_TRUE(padding.contains(0xffffffffu));
  EXPECT_TRUE(padding.contains(static_cast<std::uint32_t>(cache.view.num_pages())));
  for (const std::uint32_t page : padding) EXPECT_FALSE(own.contains(page));
}

TEST(BuiltCache, UnassignedPagesKeepThePageSizeOfTheTwin) {
  nlohmann::json object = small_attention();
  object["cache"]["unassigned"] = {{0, 1}};
  for (const Layout layout : {Layout::requested, Layout::contiguous}) {
    const LoneCache cache = build(object, layout);
    EXPECT_EQ(cache.view.page_size(), 4);
    EXPECT_TRUE(cache.view.key(cache.spec.layer).is_mapped(0, 3));
    EXPECT_FALSE(cache.view.key(cache.spec.layer).is_mapped(0, 4));
  }
}

TEST(BuiltCache, HeadsFirstPoolIsTheSameCacheInOtherStrides) {
  nlohmann::json object = small_attention();
  const LoneCache tokens_first = build(object, Layout::requested);
  object["cache"]["order"] = "hnd";
  const LoneCache heads_first = build(object, Layout::requested);
  EXPECT_GT(heads_first.view.blocks.strides[4], heads_first.view.blocks.strides[3]);
  EXPECT_EQ(heads_first.view.key(1).load(2, 1, 2, 5), tokens_first.view.key(1).load(2, 1, 2, 5));
}

TEST(Built, OutputsStartAsNan) {
  const Built built = parse_one(small_attention()).build(Layout::requested);
  const Buffer& out = buffer_of(built, "out");
  EXPECT_EQ(out.storage[static_cast<std::size_t>(out.data_offset)], std::byte{0xff});
}

TEST(MaskSpec, CountsWhatTheMaskLeaves) {
  nlohmann::json object = small_attention();  // queries 5, 6 of 7 keys; queries 0, 1, 2 of 3 keys
  const auto count = [&](const std::string& mask) {
    object["mask"] = mask;
    const Fields fields(object, "test");
    const Lengths lengths = read_lengths(fields);
    const CacheSpec cache = read_cache(fields, lengths, false);
    return total_visible(read_mask(fields, cache, lengths), cache, lengths);
  };
  EXPECT_EQ(count("causal"), 6 + 7 + 1 + 2 + 3);
  EXPECT_EQ(count("full"), 7 + 7 + 3 + 3 + 3);
  EXPECT_EQ(count("sliding_window_causal:2"), 2 + 2 + 1 + 2 + 2);
  EXPECT_EQ(count("chunked:4"), 3 + 3 + 3 + 3 + 3);
  EXPECT_EQ(count("chunked_causal:4 | sliding_window_causal:1"), 2 + 3 + 1 + 2 + 3);
  EXPECT_EQ(count("key_intervals:documents"), 7 + 7 + 3 + 3 + 3);
  EXPECT_EQ(count("key_intervals:documents & sliding_window_causal:2"), 2 + 2 + 1 + 2 + 2);
  EXPECT_EQ(count("key_intervals:spans"), 6 + 7 + 1 + 2 + 3);
  EXPECT_EQ(count("key_intervals:ranks"), 2 + 2 + 0 + 1 + 1);
  object["blind_tokens"] = {0, 4};
  EXPECT_EQ(count("key_intervals:documents"), 0 + 7 + 3 + 3 + 0);
}

// Bounds outside of int32 would be other ones; those of "hostile" reach both of its ends.
TEST(MaskSpec, HostileIntervalsAreHostile) {
  nlohmann::json object = small_attention();
  object["lengths"] = {{"new", {200}}, {"cached", {50}}};
  object["mask"] = "key_intervals:hostile";
  const Built built = parse_one(object).build(Layout::requested);
  const Buffer& buffer = buffer_of(built, "key_intervals:hostile");
  const auto* bounds = reinterpret_cast<const std::int32_t*>(buffer.data());
  const std::set<std::int32_t> found(bounds, bounds + 400);
  EXPECT_EQ(*found.begin(), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(*found.rbegin(), std::numeric_limits<std::int32_t>::max());
  EXPECT_GT(built.empty_tokens.size(), 20u);
  EXPECT_LT(built.empty_tokens.size(), 180u);
}

TEST(MaskSpec, UnassignedPagesHoldNoVisibleKey) {
  nlohmann::json object = small_attention();
  object["cache"]["unassigned"] = {{0, 0}, {0, 1}};
  const Built built = parse_one(object).build(Layout::requested);
  EXPECT_EQ(built.empty_tokens, (std::vector<std::int64_t>{0, 1}));
}

}  // namespace
}  // namespace quire::tools
