// SPDX-License-Identifier: Apache-2.0
#include "tools/case/row_address.h"

#include "quire/element.h"

namespace quire::tools {
namespace {

// `kv`: of the pool.
std::byte* address(const TensorView& pool, std::int64_t kv, const PageCursor& pages,
                   const RowPlace& place, std::int64_t last) {
  const PageSlot found = pages.find(place.sequence, place.token);
  if (!found.exists()) return nullptr;
  const std::int64_t element =
      pool.offset({found.page, kv, place.layer, found.slot, place.head, last});
  return pool.as<std::byte>() + element * (bits(pool.dtype) / 8);
}

// Number 0 of a granule is its scale, number 1 the zero that stands behind it in the row.
double read_scale(const PagedKVCache& cache, const RowPlace& place, const RowPart& part,
                  std::int32_t column, std::int32_t index_in_part, int number) {
  switch (part.scale_source) {
    case ScaleSource::none:
      return 1.0;
    case ScaleSource::in_row: {
      const std::int32_t numbers = part.dtype == DType::u4 ? 2 : 1;
      return load_element(row_address(cache, place) + part.scale_offset_bytes, part.scale_dtype,
                          index_in_part / part.granularity * numbers + number);
    }
    case ScaleSource::plane:
      return load_element(scale_address(cache, place, column / part.granularity), part.scale_dtype,
                          0);
  }
  return 0.0;
}

}  // namespace

std::byte* row_address(const PagedKVCache& cache, const RowPlace& place) {
  const bool is_value = place.side == Side::value;
  if (is_value && cache.value_blocks) {
    return address(*cache.value_blocks, 0, cache.pages(), place, 0);
  }
  return address(cache.blocks, is_value ? 1 : 0, cache.pages(), place, 0);
}

std::byte* scale_address(const PagedKVCache& cache, const RowPlace& place, std::int64_t slot) {
  if (!cache.scales.has_value()) return nullptr;
  return address(*cache.scales, place.side == Side::value ? 1 : 0, cache.scale_pages(), place,
                 slot);
}

bool has_static_scales(const PagedKVCache& cache) {
  return cache.has_static_scales();
}

StoredNumber read_number(const PagedKVCache& cache, const RowPlace& place, std::int32_t column) {
  std::int32_t index = column;
  std::size_t p = 0;
  while (index >= cache.row_format->parts[p].width) index -= cache.row_format->parts[p++].width;
  const RowPart& part = cache.row_format->parts[p];
  const std::byte* row = row_address(cache, place);
  return {.number = load_element(row + part.offset_bytes, part.dtype, index),
          .scale = read_scale(cache, place, part, column, index, 0),
          .zero = part.dtype == DType::u4 ? read_scale(cache, place, part, column, index, 1) : 0.0,
          .dtype = part.dtype};
}

}  // namespace quire::tools
