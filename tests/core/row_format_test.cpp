// SPDX-License-Identifier: Apache-2.0
#include "quire/row_format.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <type_traits>

#include "quire/error.h"

namespace quire {
namespace {

TEST(RowFormat, IsTriviallyCopyableSoThatKernelsTakeItByValue) {
  static_assert(std::is_trivially_copyable_v<RowFormat>);
}

struct Known {
  const char* name;
  RowFormat format;
  std::int32_t width;
  std::int32_t row_bytes;
  std::int32_t slots;
};

class KnownRowTest : public testing::TestWithParam<Known> {};

TEST_P(KnownRowTest, HasTheBytesOfTheOriginal) {
  const Known& row = GetParam();
  EXPECT_EQ(row.format.width(), row.width);
  EXPECT_EQ(row.format.row_bytes, row.row_bytes);
  EXPECT_EQ(row.format.plane_slots(), row.slots);
}

TEST_P(KnownRowTest, PartsCoverTheRowWithoutOverlap) {
  const RowFormat& format = GetParam().format;
  std::int32_t end = 0;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[p];
    EXPECT_GE(part.offset_bytes, end);
    end = part.offset_bytes + static_cast<std::int32_t>(bytes_for(part.dtype, part.width));
    if (part.scale_source != ScaleSource::in_row) continue;
    EXPECT_GE(part.scale_offset_bytes, end);
    const std::int32_t granules = (part.width + part.granularity - 1) / part.granularity;
    const std::int32_t scales = part.dtype == DType::u4 ? 2 * granules : granules;  // and zeros
    end = part.scale_offset_bytes + static_cast<std::int32_t>(bytes_for(part.scale_dtype, scales));
  }
  EXPECT_EQ(end, format.row_bytes);
}

TEST_P(KnownRowTest, EveryColumnIsFoundInOrder) {
  const RowFormat& format = GetParam().format;
  std::int32_t column = 0;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    for (std::int32_t i = 0; i < format.parts[p].width; ++i, ++column) {
      const RowFormat::Column place = format.locate(column);
      ASSERT_EQ(place.part, p);
      ASSERT_EQ(place.index, i);
    }
  }
  EXPECT_EQ(column, format.width());
}

INSTANTIATE_TEST_SUITE_P(
    Table, KnownRowTest,
    testing::Values(
        Known{"bf16_576", RowFormat::uniform(DType::bf16, 576), 576, 1152, 0},
        Known{"fp8_576", RowFormat::uniform(DType::fp8_e4m3, 576), 576, 576, 0},
        Known{"token_640", RowFormat::mla_fp8_token(), 576, 640, 1},
        Known{"block_656", RowFormat::mla_fp8_block(), 576, 656, 0},
        Known{"e8m0_576", RowFormat::mla_fp8_e8m0(), 512, 576, 7},
        Known{"fp8_128_scaled", RowFormat::scaled(DType::fp8_e4m3, 128, 128), 128, 128, 1},
        Known{"i8_96_per_64", RowFormat::scaled(DType::i8, 96, 64), 96, 96, 2},
        Known{"i4_64", RowFormat::uniform(DType::i4, 64), 64, 32, 0},
        Known{"i4_per_32_in_plane", RowFormat::scaled(DType::i4, 96, 32), 96, 48, 3},
        Known{"int4_128", RowFormat::int4(128), 128, 72, 0},
        Known{"int4_zeros_128", RowFormat::int4(128, 32, DType::f16, true), 128, 80, 0},
        Known{"int4_short_group", RowFormat::int4(80, 64, DType::f32), 80, 48, 0},
        // A row nobody has invented yet: other widths, other block, f16 rope.
        Known{"block_other", RowFormat::mla_fp8_block(192, 32, 64, DType::f16), 224, 268, 0}),
    [](const auto& info) { return info.param.name; });

TEST(RowFormat, DescribeSpellsTheRowOut) {
  EXPECT_EQ(RowFormat::mla_fp8_block().describe(),
            "fp8_e4m3x512 (f32 scale per 128 in row) + bf16x64, 656 B");
  EXPECT_EQ(RowFormat::uniform(DType::bf16, 128).describe(), "bf16x128, 256 B");
  EXPECT_EQ(RowFormat::int4(128).describe(), "i4x128 (f16 scale per 32 in row), 72 B");
  EXPECT_EQ(RowFormat::int4(128, 64, DType::bf16, true).describe(),
            "u4x128 (bf16 scale and zero per 64 in row), 72 B");
}

TEST(RowFormat, EqualityComparesEveryPart) {
  EXPECT_EQ(RowFormat::mla_fp8_block(), RowFormat::mla_fp8_block());
  EXPECT_NE(RowFormat::mla_fp8_block(), RowFormat::mla_fp8_block(512, 64, 64));
  EXPECT_NE(RowFormat::mla_fp8_block(), RowFormat::mla_fp8_token());
}

constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();

struct Impossible {
  const char* name;
  const char* argument;
  std::function<RowFormat()> make;
};

class ImpossibleRowTest : public testing::TestWithParam<Impossible> {};

TEST_P(ImpossibleRowTest, IsANamedError) {
  try {
    const RowFormat format = GetParam().make();
    FAIL() << "made " << format.describe();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_value);
    EXPECT_EQ(error.op(), "RowFormat");
    EXPECT_EQ(error.argument(), GetParam().argument);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, ImpossibleRowTest,
    testing::Values(
        Impossible{"block_0", "block", [] { return RowFormat::mla_fp8_block(512, 64, 0); }},
        Impossible{"block_minus_1", "block", [] { return RowFormat::mla_fp8_block(512, 64, -1); }},
        Impossible{"block_most", "block", [] { return RowFormat::mla_fp8_block(512, 64, kMost); }},
        Impossible{"powers_of_0", "block", [] { return RowFormat::mla_fp8_e8m0(448, 64, 0); }},
        Impossible{"powers_latent_0", "latent", [] { return RowFormat::mla_fp8_e8m0(0); }},
        Impossible{"powers_rope_0", "rope", [] { return RowFormat::mla_fp8_e8m0(448, 0); }},
        Impossible{"powers_most", "block", [] { return RowFormat::mla_fp8_e8m0(448, 64, kMost); }},
        Impossible{"latent_0", "latent", [] { return RowFormat::mla_fp8_block(0, 64); }},
        Impossible{"rope_0", "rope", [] { return RowFormat::mla_fp8_block(512, 0); }},
        Impossible{"latent_most", "block", [] { return RowFormat::mla_fp8_block(kMost, 64); }},
        Impossible{"rope_most", "row", [] { return RowFormat::mla_fp8_block(512, kMost); }},
        Impossible{"token_latent", "latent", [] { return RowFormat::mla_fp8_token(-512, 64); }},
        Impossible{"token_rope", "rope", [] { return RowFormat::mla_fp8_token(512, -64); }},
        Impossible{"token_most", "row", [] { return RowFormat::mla_fp8_token(kMost, 64); }},
        Impossible{"token_twice", "latent",
                   [] { return RowFormat::mla_fp8_token(1 << 30, 1 << 28); }},
        Impossible{"width_0", "width", [] { return RowFormat::uniform(DType::bf16, 0); }},
        Impossible{"width_minus_8", "width", [] { return RowFormat::uniform(DType::bf16, -8); }},
        Impossible{"width_most", "row", [] { return RowFormat::uniform(DType::bf16, kMost); }},
        Impossible{"group_0", "group", [] { return RowFormat::int4(128, 0); }},
        Impossible{"group_most", "group", [] { return RowFormat::int4(128, kMost); }},
        Impossible{"int4_width_0", "width", [] { return RowFormat::int4(0); }},
        Impossible{"int4_most", "row", [] { return RowFormat::int4(kMost - 1, 2, DType::f32); }},
        Impossible{"granule_0", "granularity", [] { return RowFormat::scaled(DType::i8, 8, 0); }},
        Impossible{"granule_most", "granularity",
                   [] { return RowFormat::scaled(DType::i8, 8, kMost); }}),
    [](const auto& info) { return info.param.name; });

TEST(RowFormat, TheLargestRowsAreRows) {
  EXPECT_EQ(RowFormat::uniform(DType::i8, kMost).row_bytes, kMost);
  EXPECT_EQ(RowFormat::scaled(DType::i8, 8, kMost - 7).plane_slots(), 1);
  EXPECT_EQ(RowFormat::mla_fp8_token(1 << 29, 1 << 29).plane_slots(), 1);
  EXPECT_EQ(why_not(RowFormat::uniform(DType::i8, kMost)), "");
}

// The zeros of u4 take bytes as well.
TEST(RowFormat, ZerosOutsideTheRowSpeakAgainstIt) {
  RowFormat format = RowFormat::int4(64, 32, DType::f16, true);
  EXPECT_EQ(format.row_bytes, 40);
  format.row_bytes = 38;
  EXPECT_EQ(why_not(format), "scales outside the row");
  format.parts[0].dtype = DType::i4;
  EXPECT_EQ(why_not(format), "");
}

TEST_P(KnownRowTest, NothingSpeaksAgainstIt) {
  EXPECT_EQ(why_not(GetParam().format), "");
}

// 40 bytes: 16 numbers of a byte at 0, and 8 at `offset`; the first part has scales at `scales`.
RowFormat two_parts(std::int32_t offset, std::int32_t scales) {
  RowFormat format;
  format.parts[0] = {.dtype = DType::fp8_e4m3,
                     .width = 16,
                     .scale_source = ScaleSource::in_row,
                     .granularity = 8,
                     .scale_offset_bytes = scales};
  format.parts[1] = {.dtype = DType::fp8_e4m3, .width = 8, .offset_bytes = offset};
  format.num_parts = 2;
  format.row_bytes = 40;
  return format;
}

TEST(RowFormat, PartsAndScalesMayTouchAndNotOverlap) {
  EXPECT_EQ(why_not(two_parts(16, 24)), "");
  EXPECT_EQ(why_not(two_parts(24, 16)), "");
  EXPECT_EQ(why_not(two_parts(32, 16)), "");
  EXPECT_EQ(why_not(two_parts(15, 24)), "parts that overlap in byte 15 of the row");
  EXPECT_EQ(why_not(two_parts(0, 24)), "parts that overlap in byte 0 of the row");
  EXPECT_EQ(why_not(two_parts(24, 15)), "parts that overlap in byte 15 of the row");
  EXPECT_EQ(why_not(two_parts(23, 16)), "parts that overlap in byte 23 of the row");
  EXPECT_EQ(why_not(two_parts(33, 16)), "a part outside the row");
  EXPECT_EQ(why_not(two_parts(-1, 16)), "a part outside the row");
  EXPECT_EQ(why_not(two_parts(16, 33)), "scales outside the row");
}

TEST(RowFormat, SumsBeyond32BitsAreSeen) {
  RowFormat format = RowFormat::uniform(DType::i4, kMost);
  format.parts[1] = {.dtype = DType::i4, .width = 8, .offset_bytes = format.row_bytes};
  format.num_parts = 2;
  format.row_bytes += 4;
  EXPECT_EQ(why_not(format), "too many columns");
}

}  // namespace
}  // namespace quire
