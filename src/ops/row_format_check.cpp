// SPDX-License-Identifier: Apache-2.0
#include "ops/row_format_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::ops {
namespace {

constexpr DType kPartTypes[] = {DType::f32,      DType::f16, DType::bf16, DType::fp8_e4m3,
                                DType::fp8_e5m2, DType::i8,  DType::i4,   DType::u4};

constexpr DType kScaleTypes[] = {DType::f32, DType::f16, DType::bf16, DType::e8m0};

template <std::size_t kSize> bool is_one_of(DType dtype, const DType (&list)[kSize]) {
  return std::ranges::find(list, dtype) != std::end(list);
}

// Columns of 4 bits come in pairs that share a byte and a scale: why not, or nothing.
std::string explain_nibbles(const RowPart& part, std::int64_t first_column) {
  const std::string type(name(part.dtype));
  if (part.granularity != 32 && part.granularity != 64) {
    return fmt::format("a scale per {} columns of {}, not per 32 or 64", part.granularity, type);
  }
  if (part.width % 2 != 0)
    return fmt::format("{} columns of {}, which come in pairs", part.width, type);
  if (part.scale_source != ScaleSource::plane) return "";
  if (part.has_zeros()) return "a u4 part whose scales and zeros are not in the row";
  // Granules of the plane are counted from column 0.
  return first_column % 2 != 0 ? fmt::format("{} from the odd column {}", type, first_column) : "";
}

// What ops ask of the numbers in a format that is consistent in itself: why not, or nothing.
std::string explain_numbers(const RowFormat& format) {
  const RowPart* plane = nullptr;
  std::int64_t end = 0;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[p];
    end += part.width;
    if (!is_one_of(part.dtype, kPartTypes)) return "a part of " + std::string(name(part.dtype));
    if (part.scale_source == ScaleSource::none) {
      if (!is_float(part.dtype)) return fmt::format("an {} part without scales", name(part.dtype));
      continue;
    }
    if (bits(part.dtype) == 4) {
      std::string reason = explain_nibbles(part, end - part.width);
      if (!reason.empty()) return reason;
    }
    if (!is_one_of(part.scale_dtype, kScaleTypes)) {
      return "scales of " + std::string(name(part.scale_dtype));
    }
    if (part.scale_dtype == DType::e8m0 && !is_fp8(part.dtype)) {
      return "e8m0 scales of " + std::string(name(part.dtype)) + " columns";
    }
    if (part.scale_source != ScaleSource::plane) continue;
    if (plane != nullptr && plane->scale_dtype != part.scale_dtype) return "two plane scale dtypes";
    plane = &part;
  }
  return "";
}

// Blocks and scales must be able to imply a format before it is asked for.
void check_implied_format(const Arguments& check, const PagedKVCache& cache, const char* name) {
  const TensorView& blocks = cache.blocks;
  if (blocks.dtype == DType::u8) {
    check.fail_type({name, "blocks"}, "of a number type without a row_format", blocks.describe());
  }
  if (!cache.scales.has_value()) {
    if (blocks.dtype == DType::i8) check.fail({name, "scales"}, "given for an i8 cache", "none");
    return;
  }
  const TensorView& scales = *cache.scales;
  if (!is_one_of(scales.dtype, kScaleTypes)) {
    check.fail_type({name, "scales"}, "f32, f16, bf16 or e8m0",
                    std::string(quire::name(scales.dtype)) + " scales");
  }
  if (scales.rank != 6 || scales.shape[5] < 1 || scales.shape[5] > blocks.shape[5]) {
    check.fail({name, "scales"},
               fmt::format("[num_scale_pages, kv, num_layers, page_size, num_kv_heads, 1 to {}]",
                           blocks.shape[5]),
               fmt::format("rank {} with {} slots", scales.rank, scales.shape[5]));
  }
}

}  // namespace

DType plane_scale_dtype(const RowFormat& format) {
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    if (format.parts[p].scale_source == ScaleSource::plane) return format.parts[p].scale_dtype;
  }
  return DType::f32;
}

RowFormat check_row_format(const Arguments& check, const PagedKVCache& cache, const char* name) {
  if (!cache.row_format.has_value()) check_implied_format(check, cache, name);
  const std::int64_t row_bytes = bytes_for(cache.blocks.dtype, cache.blocks.shape[5]);
  const RowFormat format = cache.format();
  std::string reason = why_not(format);
  if (reason.empty()) reason = explain_numbers(format);
  if (!reason.empty()) check.fail({name, "row_format"}, "consistent in itself", reason);
  if (format.row_bytes != row_bytes) {
    check.fail({name, "row_format"}, fmt::format("{} bytes like a row of blocks", row_bytes),
               format.describe());
  }
  return format;
}

}  // namespace quire::ops
