// SPDX-License-Identifier: Apache-2.0
// What one cache row (one token, one head) looks like in bytes: parts, their dtypes, and where
// their scales stand.
//
//   uniform bf16, 576 columns        | 576 × bf16                                       |  1152 B
//   uniform fp8, 576 columns         | 576 × e4m3                                       |   576 B
//   mla_fp8_token, scale per token   | 512 × e4m3 | 64 × bf16 |          (scale: plane)  |   640 B
//   mla_fp8_block, scale per 128     | 512 × e4m3 | 4 × f32 scale | 64 × bf16            |   656 B
//   mla_fp8_e8m0, scale per 64       | 448 × e4m3 | 64 × bf16 |     (7 × e8m0: plane)    |   576 B
//   int4, scale per 32, 128 columns  | 128 × i4 | 4 × f16 scale                         |    72 B
//   int4 with zeros, the same        | 128 × u4 | 4 × (f16 scale, f16 zero)             |    80 B
//
// Nothing in the library knows these seven by name: a kernel asks the format where column d is.
// Columns are logical (0 … width-1, latent first, then rope), whatever lies between the parts.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "quire/dtype.h"
#include "quire/export.h"
#include "quire/host_device.h"

namespace quire {

enum class ScaleSource : std::uint8_t {
  none,    // the stored number is the value
  in_row,  // scales stand in the row itself, at scale_offset_bytes
  plane,   // scales stand in the cache's scales tensor, through its own page table
};

struct RowPart {
  DType dtype = DType::bf16;
  std::int32_t width = 0;         // logical columns
  std::int32_t offset_bytes = 0;  // from the start of the row
  ScaleSource scale_source = ScaleSource::none;
  // Columns that share a scale; in_row: counted from the part's start, plane: from column 0.
  std::int32_t granularity = 0;
  std::int32_t scale_offset_bytes = 0;  // in_row only
  DType scale_dtype = DType::f32;

  // Codes of u4 have no number for 0: behind each scale stands a zero, the value of code 0, and
  // value = code · scale + zero. Other numbers are multiplied alone.
  QUIRE_HOST_DEVICE constexpr bool has_zeros() const { return dtype == DType::u4; }
  // Numbers of the scale's dtype that a granule has.
  QUIRE_HOST_DEVICE constexpr std::int32_t numbers_per_granule() const {
    return has_zeros() ? 2 : 1;
  }

  bool operator==(const RowPart&) const = default;
};

struct QUIRE_API RowFormat {
  static constexpr int kMaxParts = 4;

  std::array<RowPart, kMaxParts> parts{};
  std::int32_t num_parts = 0;
  std::int32_t row_bytes = 0;

  // Where a logical column stands.
  struct Column {
    std::int32_t part;
    std::int32_t index;  // within the part
  };

  // The six below throw Error for sizes under 1 and for rows of 2^31 bytes or more.
  static RowFormat uniform(DType dtype, std::int32_t width);
  // One scale for `granularity` columns, in the scales tensor.
  static RowFormat scaled(DType dtype, std::int32_t width, std::int32_t granularity,
                          DType scale_dtype = DType::f32);
  // fp8 latent, then rope in `rope_dtype`; one scale per token for the whole row, in the scales
  // tensor.
  static RowFormat mla_fp8_token(std::int32_t latent = 512, std::int32_t rope = 64,
                                 DType rope_dtype = DType::bf16);
  // fp8 latent, its f32 scales (one for `block` columns), then unscaled rope, all in the row.
  static RowFormat mla_fp8_block(std::int32_t latent = 512, std::int32_t rope = 64,
                                 std::int32_t block = 128, DType rope_dtype = DType::bf16);
  // fp8 latent, then unscaled rope; a power of two for `block` latent columns, in the scales tensor. DeepSeek-V4
  // keeps those of a page behind its rows: scales are then a view of the same memory (docs/layouts.md).
  static RowFormat mla_fp8_e8m0(std::int32_t latent = 448, std::int32_t rope = 64,
                                std::int32_t block = 64, DType rope_dtype = DType::bf16);
  // Codes of 4 bits, the even column in the low half of a byte, then the scales, one for `group` columns (32 or
  // 64), all in the row: i4, or u4 with a zero behind each scale.
  static RowFormat int4(std::int32_t width, std::int32_t group = 32, DType scale_dtype = DType::f16,
                        bool has_zeros = false);

  QUIRE_HOST_DEVICE constexpr std::int32_t width() const {
    std::int32_t sum = 0;
    for (std::int32_t p = 0; p < num_parts; ++p) sum += parts[p].width;
    return sum;
  }
  QUIRE_HOST_DEVICE constexpr Column locate(std::int32_t column) const {
    std::int32_t part = 0;
    while (part + 1 < num_parts && column >= parts[part].width) column -= parts[part++].width;
    return {part, column};
  }
  QUIRE_HOST_DEVICE constexpr bool is_uniform() const { return num_parts == 1; }
  QUIRE_HOST_DEVICE constexpr bool uses_plane() const {
    for (std::int32_t p = 0; p < num_parts; ++p) {
      if (parts[p].scale_source == ScaleSource::plane) return true;
    }
    return false;
  }
  // Scale slots per row that the scales tensor must have; 0 without a plane.
  QUIRE_HOST_DEVICE constexpr std::int32_t plane_slots() const {
    std::int32_t slots = 0;
    std::int32_t end = 0;
    for (std::int32_t p = 0; p < num_parts; ++p) {
      end += parts[p].width;
      if (parts[p].scale_source != ScaleSource::plane) continue;
      // Not end + granularity - 1, which the largest granularities bring beyond 32 bits.
      slots = end / parts[p].granularity + (end % parts[p].granularity != 0 ? 1 : 0);
    }
    return slots;
  }

  std::string describe() const;  // "fp8_e4m3x512 (f32 scale per 128 in row) + bf16x64, 656 B"
  bool operator==(const RowFormat&) const = default;
};

// Empty, or why no row can look like this: parts without columns, outside the row or over each
// other, sums beyond 32 bits. Nothing else may be asked of a format that has such a reason.
QUIRE_API std::string why_not(const RowFormat& format);

}  // namespace quire
