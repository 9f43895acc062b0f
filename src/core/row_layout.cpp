// SPDX-License-Identifier: Apache-2.0
#include "quire/row_layout.h"

#include "quire/element.h"

namespace quire {
namespace {

DType scale_dtype(const RowLayout& layout, const RowPart& part) {
  return part.scale_source == ScaleSource::plane ? layout.plane.dtype : part.scale_dtype;
}

}  // namespace

double RowLayout::load_quantized(const RowAddress& address, std::int32_t column) const {
  if (address.row == nullptr) return 0.0;
  const RowFormat::Column place = format.locate(column);
  const RowPart& part = format.parts[place.part];
  return load_element(address.row + part.offset_bytes, part.dtype, place.index);
}

double RowLayout::load(const RowAddress& address, std::int32_t column) const {
  if (address.row == nullptr) return 0.0;
  const double product = load_quantized(address, column) * load_scale(address, column);
  return format.parts[format.locate(column).part].has_zeros() ? product + load_zero(address, column)
                                                              : product;
}

void RowLayout::store(const RowAddress& address, std::int32_t column, double value) const {
  if (address.row == nullptr) return;
  const RowFormat::Column place = format.locate(column);
  const RowPart& part = format.parts[place.part];
  store_element(address.row + part.offset_bytes, part.dtype, place.index, value);
}

// Null where there is nothing to address: an unscaled part, no row, no scales tensor or no page in
// it.
std::byte* RowLayout::scale_address(const RowAddress& address, std::int32_t column) const {
  const RowFormat::Column place = format.locate(column);
  const RowPart& part = format.parts[place.part];
  switch (part.scale_source) {
    case ScaleSource::none:
      return nullptr;
    case ScaleSource::in_row:
      if (address.row == nullptr) return nullptr;
      return address.row + part.scale_offset_bytes +
             bytes_for(part.scale_dtype,
                       std::int64_t{place.index} / part.granularity * part.numbers_per_granule());
    case ScaleSource::plane:
      if (address.plane == nullptr) return nullptr;
      // The slot rounds down: column 63 at granularity 64 belongs to slot 0.
      return address.plane + bytes_for(plane.dtype, column / part.granularity * plane.slot_stride);
  }
  return nullptr;
}

double RowLayout::load_scale(const RowAddress& address, std::int32_t column) const {
  const RowPart& part = format.parts[format.locate(column).part];
  if (part.scale_source == ScaleSource::none) return 1.0;
  const std::byte* scale = scale_address(address, column);
  return scale == nullptr ? 0.0 : load_element(scale, scale_dtype(*this, part), 0);
}

double RowLayout::load_zero(const RowAddress& address, std::int32_t column) const {
  const RowPart& part = format.parts[format.locate(column).part];
  const std::byte* scale = part.has_zeros() ? scale_address(address, column) : nullptr;
  return scale == nullptr ? 0.0 : load_element(scale, scale_dtype(*this, part), 1);
}

void RowLayout::store_scale(const RowAddress& address, std::int32_t column, double scale) const {
  const RowPart& part = format.parts[format.locate(column).part];
  if (part.scale_source == ScaleSource::plane && plane.are_static) return;
  std::byte* place = scale_address(address, column);
  if (place != nullptr) store_element(place, scale_dtype(*this, part), 0, scale);
}

void RowLayout::store_zero(const RowAddress& address, std::int32_t column, double zero) const {
  const RowPart& part = format.parts[format.locate(column).part];
  std::byte* place = part.has_zeros() ? scale_address(address, column) : nullptr;
  if (place != nullptr) store_element(place, scale_dtype(*this, part), 1, zero);
}

}  // namespace quire
