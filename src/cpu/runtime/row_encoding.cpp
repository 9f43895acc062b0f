// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/row_encoding.h"

#include <algorithm>

namespace quire::cpu {

RowEncoding::RowEncoding(const RowLayout& layout) : width_(layout.width()) {
  const RowFormat& format = layout.format;
  for (std::int32_t column = 0; column < width_; ++column) {
    const auto [part_index, index] = format.locate(column);
    const RowPart& part = format.parts[static_cast<std::size_t>(part_index)];
    const std::int32_t granule = granule_of(layout, part_index, column, index);
    const bool continues = index > 0 && runs_.back().granule == granule;
    if (continues) {
      ++runs_.back().count;
      continue;
    }
    const auto offset = static_cast<std::int32_t>(bytes_for(part.dtype, index));
    runs_.push_back({.column = column,
                     .count = 1,
                     .offset_bytes = part.offset_bytes + offset,
                     .dtype = part.dtype,
                     .granule = granule});
  }
}

std::int32_t RowEncoding::granule_of(const RowLayout& layout, std::int32_t part_index,
                                     std::int32_t column, std::int32_t index) {
  const RowPart& part = layout.format.parts[static_cast<std::size_t>(part_index)];
  if (part.scale_source == ScaleSource::none) return -1;
  const bool in_plane = part.scale_source == ScaleSource::plane;
  const std::int64_t slot = (in_plane ? column : index) / part.granularity;
  const std::int64_t key = (in_plane ? 0 : part_index + 1) * (std::int64_t{1} << 32) + slot;
  const bool is_wide = bits(part.dtype) > 8;
  const auto found = std::ranges::find(keys_, key);
  const auto granule = static_cast<std::int32_t>(found - keys_.begin());
  if (found != keys_.end()) {
    RowGranule& known = granules_[static_cast<std::size_t>(granule)];
    known.has_wide = known.has_wide || is_wide;
    return granule;
  }
  keys_.push_back(key);
  if (in_plane) {
    const ScalePlane& plane = layout.plane;
    granules_.push_back({.source = plane.are_static ? GranuleScale::given : GranuleScale::plane,
                         .scale_dtype = plane.dtype,
                         .has_wide = is_wide,
                         .has_zeros = false,
                         .scale_offset = bytes_for(plane.dtype, slot * plane.slot_stride)});
  } else {
    const std::int64_t number = slot * part.numbers_per_granule();
    granules_.push_back(
        {.source = GranuleScale::in_row,
         .scale_dtype = part.scale_dtype,
         .has_wide = is_wide,
         .has_zeros = part.has_zeros(),
         .scale_offset = part.scale_offset_bytes + bytes_for(part.scale_dtype, number)});
  }
  return granule;
}

}  // namespace quire::cpu
