// SPDX-License-Identifier: Apache-2.0
#include "quire/row_format.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "quire/error.h"

namespace quire {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

void require_positive(const char* argument, std::int32_t value) {
  if (value > 0) return;
  throw Error(ErrorCode::invalid_value, "RowFormat", argument, "at least 1", std::to_string(value));
}

// 64-bit sums of 32-bit sizes cannot overflow; what goes into the format has to fit.
std::int32_t row_size(std::int64_t bytes) {
  if (bytes <= kMost) return static_cast<std::int32_t>(bytes);
  throw Error(ErrorCode::invalid_value, "RowFormat", "row", "of at most 2^31 - 1 bytes",
              std::to_string(bytes));
}

// A granule's upper end is computed in 32 bits as well: end of the columns + granularity - 1.
void require_granularity(const char* argument, std::int64_t columns, std::int64_t granularity) {
  if (columns + granularity - 1 <= kMost) return;
  throw Error(ErrorCode::invalid_value, "RowFormat", argument,
              "at most " + std::to_string(kMost + 1 - columns) + " for so many columns",
              std::to_string(granularity));
}

// Bytes of the row that belong to one part: its numbers, or its scales.
struct ByteRange {
  std::int64_t begin;
  std::int64_t end;
};

ByteRange byte_range(std::int64_t offset, DType dtype, std::int64_t count) {
  return {.begin = offset, .end = offset + bytes_for(dtype, count)};
}

bool is_inside(const ByteRange& range, std::int64_t row_bytes) {
  return range.begin >= 0 && range.end <= row_bytes;
}

// Numbers and scales of every part.
struct TakenBytes {
  std::array<ByteRange, std::size_t{2} * RowFormat::kMaxParts> ranges;
  std::size_t count = 0;

  void add(const ByteRange& range) { ranges[count++] = range; }
  std::span<ByteRange> all() { return std::span(ranges).first(count); }
};

// Why a part cannot be, or nothing; what it takes of the row is added to `taken`.
std::string why_not_part(const RowPart& part, std::int64_t row_bytes, TakenBytes& taken) {
  if (part.width < 1) return "a part " + std::to_string(part.width) + " columns wide";
  const ByteRange numbers = byte_range(part.offset_bytes, part.dtype, part.width);
  if (!is_inside(numbers, row_bytes)) return "a part outside the row";
  taken.add(numbers);
  if (part.scale_source == ScaleSource::none) return "";
  if (part.granularity < 1) {
    return "a scale for " + std::to_string(part.granularity) + " columns";
  }
  if (part.scale_source != ScaleSource::in_row) return "";
  const std::int64_t granules =
      (std::int64_t{part.width} + part.granularity - 1) / part.granularity;
  const ByteRange scales =
      byte_range(part.scale_offset_bytes, part.scale_dtype, granules * part.numbers_per_granule());
  if (!is_inside(scales, row_bytes)) return "scales outside the row";
  taken.add(scales);
  return "";
}

std::string describe_scale(const RowPart& part) {
  if (part.scale_source == ScaleSource::none) return "";
  return " (" + std::string(name(part.scale_dtype)) +
         (part.has_zeros() ? " scale and zero" : " scale") + " per " +
         std::to_string(part.granularity) +
         (part.scale_source == ScaleSource::in_row ? " in row)" : ")");
}

}  // namespace

RowFormat RowFormat::uniform(DType dtype, std::int32_t width) {
  require_positive("width", width);
  RowFormat format;
  format.num_parts = 1;
  format.parts[0] = {.dtype = dtype, .width = width};
  format.row_bytes = row_size(bytes_for(dtype, width));
  return format;
}

RowFormat RowFormat::scaled(DType dtype, std::int32_t width, std::int32_t granularity,
                            DType scale_dtype) {
  RowFormat format = uniform(dtype, width);
  require_positive("granularity", granularity);
  require_granularity("granularity", width, granularity);
  format.parts[0].scale_source = ScaleSource::plane;
  format.parts[0].granularity = granularity;
  format.parts[0].scale_dtype = scale_dtype;
  return format;
}

RowFormat RowFormat::mla_fp8_token(std::int32_t latent, std::int32_t rope, DType rope_dtype) {
  require_positive("latent", latent);
  require_positive("rope", rope);
  const std::int32_t row_bytes = row_size(std::int64_t{latent} + bytes_for(rope_dtype, rope));
  const std::int64_t columns = std::int64_t{latent} + rope;
  require_granularity("latent", columns, columns);
  const auto granularity = static_cast<std::int32_t>(columns);
  RowFormat format;
  format.num_parts = 2;
  format.parts[0] = {.dtype = DType::fp8_e4m3,
                     .width = latent,
                     .scale_source = ScaleSource::plane,
                     .granularity = granularity};
  format.parts[1] = {.dtype = rope_dtype,
                     .width = rope,
                     .offset_bytes = latent,
                     .scale_source = ScaleSource::plane,
                     .granularity = granularity};
  format.row_bytes = row_bytes;
  return format;
}

RowFormat RowFormat::mla_fp8_block(std::int32_t latent, std::int32_t rope, std::int32_t block,
                                   DType rope_dtype) {
  require_positive("latent", latent);
  require_positive("rope", rope);
  require_positive("block", block);
  require_granularity("block", latent, block);
  const std::int64_t num_scales = (std::int64_t{latent} + block - 1) / block;
  const std::int64_t rope_offset = latent + bytes_for(DType::f32, num_scales);
  const std::int32_t row_bytes = row_size(rope_offset + bytes_for(rope_dtype, rope));
  RowFormat format;
  format.num_parts = 2;
  format.parts[0] = {.dtype = DType::fp8_e4m3,
                     .width = latent,
                     .scale_source = ScaleSource::in_row,
                     .granularity = block,
                     .scale_offset_bytes = latent};
  format.parts[1] = {
      .dtype = rope_dtype, .width = rope, .offset_bytes = static_cast<std::int32_t>(rope_offset)};
  format.row_bytes = row_bytes;
  return format;
}

RowFormat RowFormat::mla_fp8_e8m0(std::int32_t latent, std::int32_t rope, std::int32_t block,
                                  DType rope_dtype) {
  require_positive("latent", latent);
  require_positive("rope", rope);
  require_positive("block", block);
  require_granularity("block", latent, block);
  RowFormat format;
  format.num_parts = 2;
  format.parts[0] = {.dtype = DType::fp8_e4m3,
                     .width = latent,
                     .scale_source = ScaleSource::plane,
                     .granularity = block,
                     .scale_dtype = DType::e8m0};
  format.parts[1] = {.dtype = rope_dtype, .width = rope, .offset_bytes = latent};
  format.row_bytes = row_size(std::int64_t{latent} + bytes_for(rope_dtype, rope));
  return format;
}

RowFormat RowFormat::int4(std::int32_t width, std::int32_t group, DType scale_dtype,
                          bool has_zeros) {
  RowFormat format = uniform(has_zeros ? DType::u4 : DType::i4, width);
  require_positive("group", group);
  require_granularity("group", width, group);
  RowPart& part = format.parts[0];
  part.scale_source = ScaleSource::in_row;
  part.granularity = group;
  part.scale_offset_bytes = format.row_bytes;
  part.scale_dtype = scale_dtype;
  const std::int64_t granules = (std::int64_t{width} + group - 1) / group;
  format.row_bytes =
      row_size(format.row_bytes + bytes_for(scale_dtype, granules * part.numbers_per_granule()));
  return format;
}

std::string why_not(const RowFormat& format) {
  if (format.num_parts < 1 || format.num_parts > RowFormat::kMaxParts) {
    return std::to_string(format.num_parts) + " parts";
  }
  TakenBytes taken;
  std::int64_t columns = 0;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[p];
    std::string reason = why_not_part(part, format.row_bytes, taken);
    if (!reason.empty()) return reason;
    columns += part.width;
    const bool has_scales = part.scale_source != ScaleSource::none;
    if (columns + (has_scales ? part.granularity - 1 : 0) > kMost) return "too many columns";
  }
  const std::span<ByteRange> ranges = taken.all();
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin >= ranges[i - 1].end) continue;
    return "parts that overlap in byte " + std::to_string(ranges[i].begin) + " of the row";
  }
  return "";
}

std::string RowFormat::describe() const {
  std::string text;
  for (std::int32_t p = 0; p < num_parts; ++p) {
    if (p > 0) text += " + ";
    text += std::string(name(parts[p].dtype)) + "x" + std::to_string(parts[p].width) +
            describe_scale(parts[p]);
  }
  return text + ", " + std::to_string(row_bytes) + " B";
}

}  // namespace quire
