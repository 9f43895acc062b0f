// SPDX-License-Identifier: Apache-2.0
// Rows with powers of two as scales, byte by byte: what DeepSeek-V4's caches hold.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "quire/ops/store.h"
#include "quire/paged_kv_operand.h"
#include "reference/row_codec.h"
#include "reference/store.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;
using test::TestCache;

// Two pages of two tokens in one tensor of bytes: 2 rows of 8 bytes (four e4m3 columns in granules of two, two of
// bf16), then 2 times 8 bytes, of which the first two are scales.
struct JoinedPages {
  static constexpr std::int64_t kRowBytes = 8;
  static constexpr std::int64_t kPageBytes = 2 * kRowBytes + 2 * 8;

  std::array<std::uint8_t, 2 * kPageBytes> bytes{};
  std::array<std::uint32_t, 1> cache_lengths{1};
  std::array<std::uint32_t, 2> page_table{1, 0};
  std::array<std::uint32_t, 2> row_offsets{0, 2};

  PagedKVCache cache() {
    PagedKVCache cache{
        .blocks = TensorView::contiguous(bytes.data(), DType::u8, {2, 1, 1, 2, 1, kRowBytes}),
        .cache_lengths = TensorView::contiguous(cache_lengths.data(), DType::u32, {1}),
        .page_table = TensorView::contiguous(page_table.data(), DType::u32, {1, 2}),
        .scales =
            TensorView::contiguous(bytes.data() + 2 * kRowBytes, DType::e8m0, {2, 1, 1, 2, 1, 2}),
        .row_format = RowFormat::mla_fp8_e8m0(4, 2, 2)};
    cache.blocks.strides[0] = kPageBytes;
    cache.scales->strides = {kPageBytes, kPageBytes, kPageBytes, 8, 8, 1};
    return cache;
  }
};

TEST(PowerScales, RowsAndScalesOfAPageStandWhereTheFormatSays) {
  JoinedPages pages;
  pages.bytes.fill(0xee);
  // Token 1 is the second row of page 1, token 2 the first of page 0.
  const HostTensor x = HostTensor::of(
      DType::f32, {2, 1, 6}, {448, -224, 1, 0.5, 3, -1, 0, 0, 449, -448, 0.25, 1.00390625});
  const StoreArgs args{
      .x = x.view(),
      .row_offsets = TensorView::contiguous(pages.row_offsets.data(), DType::u32, {2}),
      .cache = pages.cache()};
  ASSERT_EQ(supports(args).kernel.substr(0, 4), "cpu/");
  for (const bool by_op : {false, true}) {
    pages.bytes.fill(0xee);
    if (by_op) {
      quire::store(args);
    } else {
      reference::store(args);
    }
    std::array<std::uint8_t, 2 * JoinedPages::kPageBytes> expected;
    expected.fill(0xee);
    const auto put = [&](std::size_t at, std::initializer_list<std::uint8_t> codes) {
      for (const std::uint8_t code : codes) expected[at++] = code;
    };
    // 448 = 1.75 * 2^8 and -224; scale 1. 1 / 448 needs 2^-8: 256 = 2^8 and 128. bf16 3 and -1.
    put(32 + 8, {0x7e, 0xf6, 0x78, 0x70, 0x40, 0x40, 0x80, 0xbf});
    put(32 + 16 + 8, {127, 119});
    // Zeros have the smallest scale, 2^-33. 449 needs 2: 224.5 is 224, and -224. bf16 0.25 and 1 (ties to even).
    put(0, {0x00, 0x00, 0x76, 0xf6, 0x80, 0x3e, 0x80, 0x3f});
    put(16, {94, 128});
    EXPECT_EQ(pages.bytes, expected) << (by_op ? "op" : "oracle");
  }
}

TEST(PowerScales, RowsReadAsNumbersTimesTheirPowers) {
  JoinedPages pages;
  // The second row of page 1: 1.5, -2, 0.25 and 16, in granules of 2^3 and 2^-127; rope 1 and -0.5.
  const std::size_t row = 32 + 8;
  const std::array<std::uint8_t, 8> codes{0x3c, 0xc0, 0x28, 0x58, 0x80, 0x3f, 0x00, 0xbf};
  std::copy(codes.begin(), codes.end(), pages.bytes.begin() + row);
  pages.bytes[32 + 16 + 8] = 130;
  pages.bytes[32 + 16 + 9] = 0;
  const KvLayerView view = pages.cache().key(0);
  EXPECT_EQ(decode_row(PagedKvOperand(view), 0, 0, 1),
            (std::vector<double>{12, -16, 0x1p-129, 0x1p-123, 1, -0.5}));
  pages.bytes[32 + 16 + 8] = 255;
  EXPECT_TRUE(std::isnan(decode_row(PagedKvOperand(view), 0, 0, 1)[0]));
}

// A scale is never smaller than what its granule needs, and never twice as large.
TEST(PowerScales, AreTheSmallestThatDoNotSaturate) {
  const TestCache cache({.cache_lengths = {0},
                         .new_tokens = {40},
                         .row_format = RowFormat::mla_fp8_e8m0(64, 2, 64),
                         .num_kv_heads = 1,
                         .is_mla = true});
  const HostTensor x = HostTensor::random(DType::f32, {40, 1, 66}, 3, 1.0);
  for (std::int64_t token = 0; token < 40; ++token) {
    for (std::int64_t d = 0; d < 66; ++d) {
      x.view().store({token, 0, d}, std::ldexp(x.at({token, 0, d}), static_cast<int>(token) - 20));
    }
  }
  reference::store(
      {.x = x.view(), .row_offsets = cache.row_offsets(), .cache = cache.view(), .layer = 1});
  for (std::int64_t token = 0; token < 40; ++token) {
    double amax = 0.0;
    for (std::int64_t d = 0; d < 64; ++d) amax = std::fmax(amax, std::abs(x.at({token, 0, d})));
    const double scale = cache.view().key(1).load_scale(0, 0, token, 0);
    EXPECT_GE(scale, amax / 448);
    EXPECT_LT(scale, 2 * amax / 448);
  }
}

}  // namespace
}  // namespace quire::reference
