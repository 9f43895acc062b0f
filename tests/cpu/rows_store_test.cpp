// SPDX-License-Identifier: Apache-2.0
// store and store_scales on every target against the reference: two caches with the same memory,
// compared whole, so that a byte written where it should not be shows too.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpu/row_target.h"
#include "quire/ops/store.h"
#include "reference/store.h"
#include "support/cache_builder.h"

namespace quire::cpu {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::TestCache;

constexpr std::int64_t kLayer = 1;

// i8 and e4m3 columns share plane scales with bf16 ones, an e5m2 part has its own in the row, f16
// stands alone; gaps between the parts.
RowFormat mixed_format() {
  RowFormat format;
  format.num_parts = 4;
  format.row_bytes = 120;
  format.parts[0] = {.dtype = DType::i8,
                     .width = 13,
                     .offset_bytes = 1,
                     .scale_source = ScaleSource::plane,
                     .granularity = 10,
                     .scale_dtype = DType::bf16};
  format.parts[1] = {.dtype = DType::fp8_e4m3,
                     .width = 11,
                     .offset_bytes = 15,
                     .scale_source = ScaleSource::plane,
                     .granularity = 10,
                     .scale_dtype = DType::bf16};
  format.parts[2] = {.dtype = DType::bf16,
                     .width = 9,
                     .offset_bytes = 27,
                     .scale_source = ScaleSource::plane,
                     .granularity = 10,
                     .scale_dtype = DType::bf16};
  format.parts[3] = {.dtype = DType::fp8_e5m2,
                     .width = 17,
                     .offset_bytes = 50,
                     .scale_source = ScaleSource::in_row,
                     .granularity = 4,
                     .scale_offset_bytes = 70,
                     .scale_dtype = DType::f16};
  return format;
}

std::vector<RowFormat> all_formats() {
  std::vector<RowFormat> formats;
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2}) {
    formats.push_back(RowFormat::uniform(dtype, 37));
  }
  for (const DType scale : {DType::f32, DType::f16, DType::bf16}) {
    formats.push_back(RowFormat::scaled(DType::fp8_e4m3, 48, 16, scale));
    formats.push_back(RowFormat::scaled(DType::fp8_e5m2, 21, 5, scale));
    formats.push_back(RowFormat::scaled(DType::i8, 40, 40, scale));
  }
  formats.push_back(RowFormat::scaled(DType::fp8_e4m3, 48, 16, DType::e8m0));
  formats.push_back(RowFormat::scaled(DType::fp8_e5m2, 21, 5, DType::e8m0));
  for (const DType scale : {DType::f32, DType::f16, DType::bf16}) {
    for (const bool has_zeros : {false, true}) {
      formats.push_back(RowFormat::int4(96, 32, scale, has_zeros));
      formats.push_back(RowFormat::int4(86, 64, scale, has_zeros));
    }
    formats.push_back(RowFormat::scaled(DType::i4, 74, 32, scale));
  }
  formats.push_back(RowFormat::scaled(DType::bf16, 20, 7));  // wide columns alone: scale 1
  for (const DType rope : {DType::f32, DType::f16, DType::bf16}) {
    formats.push_back(RowFormat::mla_fp8_token(35, 10, rope));
    formats.push_back(RowFormat::mla_fp8_block(70, 10, 32, rope));
    formats.push_back(RowFormat::mla_fp8_e8m0(70, 10, 32, rope));
  }
  formats.push_back(mixed_format());
  return formats;
}

CacheOptions options_of(const RowFormat& format) {
  CacheOptions options;
  options.cache_lengths = {5, 0, 9, 0, 2};
  options.new_tokens = {6, 0, 120, 1, 7};
  options.row_format = format;
  return options;
}

class RowsStore : public RowTarget {
 protected:
  // dtype of x; x has padding between its heads and tokens.
  void expect_equal(const CacheOptions& options, DType dtype, Numbers numbers,
                    KvSide side = KvSide::value) {
    const TestCache wanted = make(options);
    const std::int64_t width = options.row_format.width();
    const HostTensor memory = make_numbers(
        numbers, dtype, {wanted.num_tokens(), options.num_kv_heads + 1, width + padding_}, 23);
    TensorView x = memory.view();
    x.shape[1] = options.num_kv_heads;
    x.shape[2] = width;
    const auto args_for = [&](const TestCache& cache) {
      return StoreArgs{.x = x,
                       .row_offsets = cache.row_offsets(),
                       .cache = cache.view(),
                       .layer = kLayer,
                       .side = side};
    };
    reference::store(args_for(wanted));
    for (const int threads : thread_counts_) {
      const TestCache cache = make(options);
      ASSERT_EQ(supports(args_for(cache), context(threads)).kernel, kernel("store"));
      store(args_for(cache), context(threads));
      ASSERT_TRUE(cache.block_bytes() == wanted.block_bytes())
          << options.row_format.describe() << " from " << name(dtype) << ", numbers "
          << static_cast<int>(numbers) << ", " << threads << " threads";
      ASSERT_TRUE(cache.scale_bytes() == wanted.scale_bytes()) << options.row_format.describe();
    }
  }

  // [tokens, K and V, heads, width] in one tensor, a slot for each token, every ninth of which is skipped.
  void expect_pair(const CacheOptions& options, DType slot_type) {
    const TestCache by_lengths = make(options);
    const TestCache skipping = make(options);
    const std::int64_t tokens = by_lengths.num_tokens();
    const std::int64_t width = options.row_format.width();
    const HostTensor memory =
        make_numbers(Numbers::ordinary, DType::bf16, {tokens, 2 * options.num_kv_heads, width}, 31);
    TensorView k = memory.view();
    k.shape[1] = options.num_kv_heads;
    TensorView v = k;
    v.data = k.as<std::byte>() + bytes_for(k.dtype, options.num_kv_heads * k.strides[1]);
    for (const KvSide side : {KvSide::key, KvSide::value}) {
      reference::store({.x = side == KvSide::key ? k : v,
                        .row_offsets = by_lengths.row_offsets(),
                        .cache = by_lengths.view(),
                        .layer = kLayer,
                        .side = side});
    }
    const HostTensor slots = slots_of(by_lengths, slot_type);
    StoreArgs args{
        .x = k, .row_offsets = by_lengths.row_offsets(), .cache = {}, .layer = kLayer, .value = v};
    const auto by_slots = [&](const TestCache& cache) {
      StoreArgs slotted = args;
      slotted.row_offsets = {};
      slotted.cache = {.blocks = cache.view().blocks,
                       .scales = cache.view().scales,
                       .row_format = cache.view().row_format};
      slotted.slots = slots.view();
      return slotted;
    };
    reference::store(by_slots(skipping));
    for (const int threads : thread_counts_) {
      const TestCache paged = make(options);
      args.cache = paged.view();
      store(args, context(threads));
      ASSERT_TRUE(paged.block_bytes() == by_lengths.block_bytes()) << options.row_format.describe();
      ASSERT_TRUE(paged.scale_bytes() == by_lengths.scale_bytes()) << options.row_format.describe();
      const TestCache slotted = make(options);
      ASSERT_EQ(supports(by_slots(slotted), context(threads)).kernel, kernel("store"));
      store(by_slots(slotted), context(threads));
      ASSERT_TRUE(slotted.block_bytes() == skipping.block_bytes()) << options.row_format.describe();
      ASSERT_TRUE(slotted.scale_bytes() == skipping.scale_bytes()) << options.row_format.describe();
    }
  }

  static HostTensor slots_of(const TestCache& cache, DType type) {
    HostTensor slots(type, {cache.num_tokens()});
    const PagedKVCache view = cache.view();
    const auto* offsets = cache.row_offsets().as<const std::uint32_t>();
    for (std::int64_t b = 0; b < view.batch(); ++b) {
      for (std::int64_t token = offsets[b]; token < offsets[b + 1]; ++token) {
        const PageSlot place = view.pages().find(b, view.cache_length(b) + token - offsets[b]);
        const std::int64_t slot =
            token % 9 == 4 ? -token : place.page * view.page_size() + place.slot;
        if (type == DType::i64) {
          slots.view().as<std::int64_t>()[token] = slot;
        } else {
          slots.view().as<std::int32_t>()[token] = static_cast<std::int32_t>(slot);
        }
      }
    }
    return slots;
  }

  TestCache make(const CacheOptions& options) const {
    TestCache cache(options);
    for (const std::int64_t column : unassigned_) cache.unassign(2, column);
    return cache;
  }

  std::int64_t padding_ = 3;
  std::vector<std::int64_t> unassigned_{};
};

TEST_P(RowsStore, EveryFormatFromEveryType) {
  for (const RowFormat& format : all_formats()) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const Numbers numbers : kAllNumbers) expect_equal(options_of(format), dtype, numbers);
    }
  }
}

TEST_P(RowsStore, AnyNumberOfThreads) {
  thread_counts_ = kThreadCounts;
  expect_equal(options_of(mixed_format()), DType::bf16, Numbers::ordinary);
  expect_equal(options_of(RowFormat::mla_fp8_block()), DType::f32, Numbers::small_whole);
}

TEST_P(RowsStore, CodesOfTheRowsOwnType) {
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2}) {
    for (const std::int64_t padding : {0, 5}) {
      padding_ = padding;
      expect_equal(options_of(RowFormat::uniform(dtype, 64)), dtype, Numbers::any_bits);
    }
  }
  for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2, DType::i8}) {
    expect_equal(options_of(RowFormat::scaled(dtype, 33, 8)), dtype, Numbers::any_bits);
  }
}

// Heads without padding on either side are joined into one row.
TEST_P(RowsStore, DenseHeads) {
  CacheOptions options = options_of(RowFormat::uniform(DType::fp8_e4m3, 24));
  padding_ = 0;
  for (const std::int64_t heads : {1, 3}) {
    options.num_kv_heads = heads;
    expect_equal(options, DType::bf16, Numbers::ordinary, KvSide::key);
    options.heads_first = true;
    expect_equal(options, DType::f32, Numbers::any_bits, KvSide::key);
    options.heads_first = false;
  }
}

TEST_P(RowsStore, StaticScalesAreReadAndNeverWritten) {
  for (const double scale : {0.0125, 3.0, 0x1p-95}) {
    for (const RowFormat& format :
         {RowFormat::scaled(DType::fp8_e4m3, 48, 16), RowFormat::scaled(DType::i8, 31, 31),
          RowFormat::scaled(DType::i4, 62, 32), RowFormat::mla_fp8_token(40, 8)}) {
      CacheOptions options = options_of(format);
      options.static_scale = scale;
      for (const Numbers numbers : kAllNumbers) expect_equal(options, DType::f32, numbers);
    }
  }
}

// A pool of one token: no stride tells its static scale from a dynamic one.
TEST_P(RowsStore, AStaticScaleOfOnePageAndOneTokenIsNeverWritten) {
  for (const bool is_static : {true, false}) {
    const CacheOptions options{.cache_lengths = {0},
                               .new_tokens = {1},
                               .row_format = RowFormat::scaled(DType::fp8_e4m3, 16, 16),
                               .page_size = 1,
                               .num_layers = kLayer + 1,
                               .num_kv_heads = 1,
                               .spare_pages = 0};
    TestCache cache(options);
    PagedKVCache view = cache.view();
    view.static_scales = is_static;
    for (std::int64_t i = 0; i < view.scales->numel(); ++i) {
      store_element(view.scales->data, DType::f32, i, 0.5);
    }
    const HostTensor x = HostTensor::filled(DType::f32, {1, 1, 16}, 7.0);
    store({.x = x.view(), .row_offsets = cache.row_offsets(), .cache = view, .layer = kLayer},
          context(1));
    const double scale = is_static ? 0.5 : static_cast<double>(7.0f / 448.0f);
    EXPECT_EQ(view.key(kLayer).load_scale(0, 0, 0, 0), scale);
    EXPECT_EQ(view.key(kLayer).load_quantized(0, 0, 0, 0), is_static ? 14.0 : 448.0);
  }
}

TEST_P(RowsStore, UnassignedPagesAndScalePagesOfTheirOwn) {
  unassigned_ = {3, 5};
  for (const RowFormat& format : {RowFormat::uniform(DType::bf16, 16),
                                  RowFormat::scaled(DType::fp8_e4m3, 32, 8), mixed_format()}) {
    CacheOptions options = options_of(format);
    expect_equal(options, DType::bf16, Numbers::ordinary);
    options.own_scale_pages = format.uses_plane();
    options.page_size = 1;
    expect_equal(options, DType::f32, Numbers::small_whole);
    options.heads_first = true;
    options.page_size = 16;
    expect_equal(options, DType::f16, Numbers::ordinary);
  }
}

// K and V in one call, by lengths and by slots: the bytes of two calls of the reference by lengths.
TEST_P(RowsStore, PairsAndSlots) {
  thread_counts_ = kThreadCounts;
  for (const RowFormat& format : all_formats()) {
    CacheOptions options = options_of(format);
    for (const bool heads_first : {false, true}) {
      options.heads_first = heads_first;
      for (const DType slot_type : {DType::i64, DType::i32}) expect_pair(options, slot_type);
    }
  }
  CacheOptions options = options_of(RowFormat::scaled(DType::fp8_e4m3, 48, 16));
  options.static_scale = 0.0125;
  expect_pair(options, DType::i64);
}

TEST_P(RowsStore, ScalesGoToTheirSlots) {
  for (const RowFormat& format :
       {RowFormat::scaled(DType::fp8_e4m3, 48, 16), RowFormat::scaled(DType::i8, 21, 5, DType::f16),
        RowFormat::mla_fp8_token(40, 8), mixed_format()}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const CacheOptions options = options_of(format);
      thread_counts_ = kThreadCounts;
      unassigned_ = {4};
      const TestCache wanted = make(options);
      const HostTensor memory =
          make_numbers(Numbers::ordinary, dtype,
                       {wanted.num_tokens(), format.plane_slots() + 1, options.num_kv_heads}, 29);
      TensorView scales = memory.view();  // slots before heads in memory, one slot of padding
      std::swap(scales.shape[1], scales.shape[2]);
      std::swap(scales.strides[1], scales.strides[2]);
      scales.shape[2] = format.plane_slots();
      const auto args_for = [&](const TestCache& cache) {
        return StoreScalesArgs{.scales = scales,
                               .row_offsets = cache.row_offsets(),
                               .cache = cache.view(),
                               .layer = kLayer,
                               .side = KvSide::key};
      };
      reference::store_scales(args_for(wanted));
      for (const int threads : thread_counts_) {
        const TestCache cache = make(options);
        ASSERT_EQ(supports(args_for(cache), context(threads)).kernel, kernel("store_scales"));
        store_scales(args_for(cache), context(threads));
        ASSERT_TRUE(cache.scale_bytes() == wanted.scale_bytes()) << format.describe();
        ASSERT_TRUE(cache.block_bytes() == wanted.block_bytes()) << format.describe();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowsStore, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
