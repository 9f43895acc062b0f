// SPDX-License-Identifier: Apache-2.0
#include "tools/case/row_numbers.h"

namespace quire::tools {
namespace {

// Codes of u4 have no sign: the middle of their range, which a zero makes about 0.
double code_mean(const RowPart& part) {
  return part.dtype == DType::u4 ? 7.5 : 0.0;
}

}  // namespace

double code_amplitude(const RowFormat& format, const RowPart& part) {
  const DType dtype = format.parts[0].dtype;
  if (bits(dtype) < 8) return 3.5;  // now and then the largest code
  if (dtype == DType::i8) return 35.0;
  return part.scale_source == ScaleSource::none ? 1.0 : 60.0;
}

double scale_spread(DType dtype) {
  return dtype == DType::e8m0 ? 0.25 : 0.1;
}

RowNumbers::RowNumbers(const RowFormat& format, std::uint64_t seed, const std::string& name)
    : format_(format) {
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[static_cast<std::size_t>(p)];
    const std::string number = std::to_string(p);
    const double amplitude = code_amplitude(format, part);
    const double mean = 1.0 / amplitude;
    const double spread = scale_spread(part.scale_dtype) * mean;
    numbers_.emplace_back(seed, name + ".part" + number, part.dtype, amplitude, code_mean(part));
    scales_.emplace_back(seed, name + ".scale" + number, part.scale_dtype, spread, mean);
    zeros_.emplace_back(seed, name + ".zero" + number, part.scale_dtype, 0.25,
                        -code_mean(part) * mean);
  }
}

void RowNumbers::write_scales(std::byte* row, std::size_t part_index, std::int64_t index) {
  const RowPart& part = format_.parts[part_index];
  std::byte* scale = row + part.scale_offset_bytes;
  const std::int64_t count = (part.width + part.granularity - 1) / part.granularity;
  if (!part.has_zeros()) return scales_[part_index].copy(scale, index * count, count);
  const std::int64_t step = bytes_for(part.scale_dtype, 1);
  for (std::int64_t i = 0; i < count; ++i, scale += 2 * step) {
    scales_[part_index].copy(scale, index * count + i, 1);
    zeros_[part_index].copy(scale + step, index * count + i, 1);
  }
}

void RowNumbers::write_row(std::byte* row, std::int64_t index) {
  for (std::size_t p = 0; p < numbers_.size(); ++p) {
    const RowPart& part = format_.parts[p];
    numbers_[p].copy(row + part.offset_bytes, index * part.width, part.width);
    if (part.scale_source == ScaleSource::in_row) write_scales(row, p, index);
  }
}

void RowNumbers::write(const PagedKVCache& cache, const RowPlace& place, std::int64_t index) {
  std::byte* row = row_address(cache, place);
  if (row == nullptr) return;
  write_row(row, index);
  if (!format_.uses_plane() || has_static_scales(cache)) return;
  const std::int64_t slots = format_.plane_slots();
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    std::byte* scale = scale_address(cache, place, slot);
    if (scale != nullptr) scales_[0].copy(scale, index * slots + slot, 1);
  }
}

}  // namespace quire::tools
