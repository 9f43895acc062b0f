// SPDX-License-Identifier: Apache-2.0
// The cache view against element offsets computed here by hand from the 6-D shape.
#include "quire/paged_kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "quire/element.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr std::int64_t kPages = 4, kKv = 2, kLayers = 3, kPageSize = 2, kHeads = 2, kDim = 4;

// f32 blocks whose element i holds the value i, so that a load tells which element it read.
struct CountingCache {
  std::vector<float> blocks =
      std::vector<float>(kPages * kKv * kLayers * kPageSize * kHeads * kDim);
  std::vector<std::uint32_t> table{2, 0, 3, 1};
  std::vector<std::uint32_t> lengths{3, 1};
  PagedKVCache cache;

  CountingCache() {
    std::iota(blocks.begin(), blocks.end(), 0.0f);
    cache.blocks = TensorView::contiguous(blocks.data(), DType::f32,
                                          {kPages, kKv, kLayers, kPageSize, kHeads, kDim});
    cache.page_table = TensorView::contiguous(table.data(), DType::u32, {2, 2});
    cache.cache_lengths = TensorView::contiguous(lengths.data(), DType::u32, {2});
  }
};

std::int64_t element(std::int64_t page, std::int64_t kv, std::int64_t layer, std::int64_t token,
                     std::int64_t head, std::int64_t d) {
  return ((((page * kKv + kv) * kLayers + layer) * kPageSize + token) * kHeads + head) * kDim + d;
}

TEST(PagedKVCache, LayerViewIsTriviallyCopyableSoThatKernelsTakeItByValue) {
  static_assert(std::is_trivially_copyable_v<KvLayerView>);
}

TEST(PagedKVCache, EveryElementOfEveryLayerIsWhereTheSixDimensionalShapePutsIt) {
  const CountingCache counting;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    for (std::int64_t kv = 0; kv < kKv; ++kv) {
      const KvLayerView view = kv == 0 ? counting.cache.key(layer) : counting.cache.value(layer);
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t token = 0; token < 4; ++token) {
          for (std::int64_t head = 0; head < kHeads; ++head) {
            for (std::int32_t d = 0; d < kDim; ++d) {
              const std::int64_t page = counting.table[b * 2 + token / kPageSize];
              ASSERT_EQ(view.load(b, head, token, d),
                        element(page, kv, layer, token % kPageSize, head, d));
            }
          }
        }
      }
    }
  }
}

TEST(PagedKVCache, PageStrideSpansAllLayersAndBothOfKAndV) {
  const CountingCache counting;
  EXPECT_EQ(counting.cache.key(1).page_stride_bytes, kKv * kLayers * kPageSize * kHeads * kDim * 4);
}

TEST(PagedKVCache, StoreWritesOneElementAndNothingElse) {
  CountingCache counting;
  counting.cache.value(2).store(1, 1, 3, 2, -5.0);
  const std::int64_t target = element(1, 1, 2, 1, 1, 2);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(counting.blocks.size()); ++i) {
    ASSERT_EQ(counting.blocks[i], i == target ? -5.0f : static_cast<float>(i));
  }
}

TEST(PagedKVCache, UnassignedPagesReadAsZeroAndDropStores) {
  for (const std::uint32_t sentinel : {std::uint32_t{kPages}, 0xffffffffu}) {
    CountingCache counting;
    counting.table[0] = sentinel;
    const std::vector<float> before = counting.blocks;
    const KvLayerView view = counting.cache.key(0);
    EXPECT_FALSE(view.is_mapped(0, 1));
    EXPECT_TRUE(view.is_mapped(0, 2));
    EXPECT_EQ(view.row(0, 1, 0), nullptr);
    EXPECT_EQ(view.load(0, 0, 1, 3), 0.0);
    view.store(0, 0, 1, 3, 7.0);
    EXPECT_EQ(counting.blocks, before);
  }
}

TEST(PagedKVCache, TokensPastTheTableAreUnassigned) {
  const CountingCache counting;
  EXPECT_FALSE(counting.cache.key(0).is_mapped(0, 4));
  EXPECT_EQ(counting.cache.key(0).load(0, 0, 4, 0), 0.0);
}

TEST(PagedKVCache, LayerOutOfRangeAndValuesOfAnMlaCacheAreErrors) {
  CountingCache counting;
  EXPECT_THROW(counting.cache.key(kLayers), Error);
  EXPECT_THROW(counting.cache.key(-1), Error);
  counting.cache.blocks.shape[1] = 1;
  EXPECT_TRUE(counting.cache.is_mla());
  EXPECT_NO_THROW(counting.cache.key(0));
  EXPECT_THROW(counting.cache.value(0), Error);
}

TEST(PagedKVCache, HeadMajorPoolsWorkThroughTheirStrides) {
  CountingCache counting;
  // [pages, kv, layers, heads, page_size, dim] in memory, viewed as [.., page_size, heads, dim].
  counting.cache.blocks.strides[3] = kDim;
  counting.cache.blocks.strides[4] = kPageSize * kDim;
  const KvLayerView view = counting.cache.key(1);
  EXPECT_EQ(view.load(0, 1, 1, 3), element(2, 0, 1, 0, 0, 0) + 1 * kPageSize * kDim + 1 * kDim + 3);
}

TEST(PagedKVCache, CacheLengthReadsTheSequence) {
  const CountingCache counting;
  EXPECT_EQ(counting.cache.cache_length(0), 3u);
  EXPECT_EQ(counting.cache.key(0).cache_length(1), 1u);
}

struct ScaledCache : CountingCache {
  std::vector<float> scales = std::vector<float>(kPages * kKv * kLayers * kPageSize * kHeads * 2);
  std::vector<std::uint32_t> scale_table{0, 1, 2, 3};

  ScaledCache() {
    std::iota(scales.begin(), scales.end(), 1000.0f);
    cache.scales = TensorView::contiguous(scales.data(), DType::f32,
                                          {kPages, kKv, kLayers, kPageSize, kHeads, 2});
  }
  float scale_at(std::int64_t page, std::int64_t kv, std::int64_t layer, std::int64_t token,
                 std::int64_t head, std::int64_t slot) const {
    return scales[((((page * kKv + kv) * kLayers + layer) * kPageSize + token) * kHeads + head) *
                      2 +
                  slot];
  }
};

TEST(PagedKVCacheScales, GranularityFollowsFromTheSlotsAndRoundsDown) {
  const ScaledCache scaled;
  EXPECT_EQ(scaled.cache.format().parts[0].granularity, 2);
  const KvLayerView view = scaled.cache.value(2);
  EXPECT_EQ(view.load_scale(0, 1, 3, 1), scaled.scale_at(0, 1, 2, 1, 1, 0));
  EXPECT_EQ(view.load_scale(0, 1, 3, 2), scaled.scale_at(0, 1, 2, 1, 1, 1));
}

TEST(PagedKVCacheScales, OwnPageTableIsUsedForScalesAndOnlyForThem) {
  ScaledCache scaled;
  scaled.cache.scales_page_table =
      TensorView::contiguous(scaled.scale_table.data(), DType::u32, {2, 2});
  const KvLayerView view = scaled.cache.key(0);
  EXPECT_EQ(view.load_scale(1, 0, 0, 0), scaled.scale_at(2, 0, 0, 0, 0, 0));
  EXPECT_EQ(view.load_quantized(1, 0, 0, 0), element(3, 0, 0, 0, 0, 0));
}

TEST(PagedKVCacheScales, LoadMultipliesAndLoadQuantizedDoesNot) {
  const ScaledCache scaled;
  const KvLayerView view = scaled.cache.key(1);
  const double raw = view.load_quantized(0, 0, 2, 1);
  EXPECT_EQ(raw, element(0, 0, 1, 0, 0, 1));
  EXPECT_EQ(view.load(0, 0, 2, 1), raw * view.load_scale(0, 0, 2, 1));
}

TEST(PagedKVCacheScales, BroadcastScalesAreReadAndNeverWritten) {
  ScaledCache scaled;
  scaled.cache.scales->strides = {0, 0, 0, 0, 0, 0};
  const KvLayerView view = scaled.cache.key(2);
  EXPECT_TRUE(view.scales.is_static());
  EXPECT_EQ(view.load_scale(1, 1, 1, 3), 1000.0);
  view.store_scale(1, 1, 1, 3, 5.0);
  EXPECT_EQ(scaled.scales[0], 1000.0f);
}

// Pages and tokens of which there is one have no stride that says anything: frameworks fill in what they like.
TEST(PagedKVCacheScales, OneTokenSaysByItselfWhetherItsScalesAreStatic) {
  ScaledCache scaled;
  TensorView& scales = *scaled.cache.scales;
  scales.shape = {1, kKv, kLayers, 1, kHeads, 2};
  EXPECT_FALSE(scaled.cache.has_static_scales());
  for (const int dim : {1, 2, 4, 5}) {
    const std::int64_t stride = std::exchange(scales.strides[dim], 0);
    EXPECT_TRUE(scaled.cache.has_static_scales()) << "heads, layers, … share one scale";
    scales.strides[dim] = stride;
  }
  scaled.cache.static_scales = true;
  const KvLayerView view = scaled.cache.key(0);
  EXPECT_TRUE(view.scales.is_static());
  view.store_scale(0, 0, 0, 0, 5.0);
  EXPECT_EQ(scaled.scales[0], 1000.0f);
  scaled.cache.static_scales = false;
  scales.strides[0] = scales.strides[3] = 0;
  EXPECT_FALSE(scaled.cache.has_static_scales());
  scaled.cache.static_scales.reset();
  EXPECT_TRUE(scaled.cache.has_static_scales()) << "both strides say so";
}

TEST(PagedKVCacheScales, TheStrideOfASinglePageSaysNothing) {
  ScaledCache scaled;
  TensorView& scales = *scaled.cache.scales;
  scales.shape[0] = 1;
  scales.strides[0] = 0;
  EXPECT_FALSE(scaled.cache.has_static_scales()) << "each token has its own scale";
  scales.strides[3] = 0;
  EXPECT_TRUE(scaled.cache.has_static_scales());
  EXPECT_FALSE(CountingCache().cache.has_static_scales());
}

TEST(PagedKVCacheScales, StoreScaleReachesItsSlotOnly) {
  ScaledCache scaled;
  const std::vector<float> before = scaled.scales;
  scaled.cache.key(0).store_scale(0, 1, 0, 3, 0.5);
  int changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) changed += before[i] != scaled.scales[i] ? 1 : 0;
  EXPECT_EQ(changed, 1);
  EXPECT_EQ(scaled.cache.key(0).load_scale(0, 1, 0, 2), 0.5);
}

TEST(PagedKVCacheScales, InRowScalesStandBesideTheirColumns) {
  const RowFormat format = RowFormat::mla_fp8_block(8, 4, 4);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(2 * format.row_bytes), 0);
  std::vector<std::uint32_t> table{0};
  std::vector<std::uint32_t> lengths{0};
  PagedKVCache cache{
      .blocks =
          TensorView::contiguous(bytes.data(), DType::fp8_e4m3, {1, 1, 1, 2, 1, format.row_bytes}),
      .cache_lengths = TensorView::contiguous(lengths.data(), DType::u32, {1}),
      .page_table = TensorView::contiguous(table.data(), DType::u32, {1, 1}),
      .row_format = format,
  };
  const KvLayerView view = cache.key(0);
  view.store(0, 0, 1, 5, 2.0);
  view.store_scale(0, 0, 1, 5, 3.0);
  view.store(0, 0, 1, 9, -1.25);
  EXPECT_EQ(view.load(0, 0, 1, 5), 6.0);
  EXPECT_EQ(view.load_scale(0, 0, 1, 7), 3.0);
  EXPECT_EQ(view.load_scale(0, 0, 1, 3), 0.0);
  EXPECT_EQ(view.load(0, 0, 1, 9), -1.25);
  EXPECT_EQ(view.load_scale(0, 0, 1, 9), 1.0);
  // Second row: 8 fp8, two f32 scales, four bf16.
  EXPECT_EQ(load_element(bytes.data() + format.row_bytes + 8, DType::f32, 1), 3.0);
  EXPECT_EQ(load_element(bytes.data() + format.row_bytes + 16, DType::bf16, 1), -1.25);
}

}  // namespace
}  // namespace quire
