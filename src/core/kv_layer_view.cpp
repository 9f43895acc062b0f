// SPDX-License-Identifier: Apache-2.0
#include "quire/kv_layer_view.h"

#include "quire/element.h"

namespace quire {
namespace {

DType scale_dtype(const KvLayerView& view, const RowPart& part) {
  return part.scale_source == ScaleSource::plane ? view.scales.dtype : part.scale_dtype;
}

}  // namespace

double KvLayerView::load_quantized(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                   std::int32_t column) const {
  const std::byte* start = row(sequence, token, head);
  if (start == nullptr) return 0.0;
  const RowFormat::Column place = row_format.locate(column);
  const RowPart& part = row_format.parts[place.part];
  return load_element(start + part.offset_bytes, part.dtype, place.index);
}

double KvLayerView::load(std::int64_t sequence, std::int64_t head, std::int64_t token,
                         std::int32_t column) const {
  if (!is_mapped(sequence, token)) return 0.0;
  return load_quantized(sequence, head, token, column) * load_scale(sequence, head, token, column);
}

void KvLayerView::store(std::int64_t sequence, std::int64_t head, std::int64_t token,
                        std::int32_t column, double value) const {
  std::byte* start = row(sequence, token, head);
  if (start == nullptr) return;
  const RowFormat::Column place = row_format.locate(column);
  const RowPart& part = row_format.parts[place.part];
  store_element(start + part.offset_bytes, part.dtype, place.index, value);
}

// Null where there is nothing to address: an unscaled part, no scales tensor, or an unassigned
// page.
std::byte* KvLayerView::scale_address(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                      std::int32_t column) const {
  const RowFormat::Column place = row_format.locate(column);
  const RowPart& part = row_format.parts[place.part];
  if (part.scale_source == ScaleSource::none) return nullptr;
  if (part.scale_source == ScaleSource::in_row) {
    std::byte* start = row(sequence, token, head);
    if (start == nullptr) return nullptr;
    return start + part.scale_offset_bytes +
           bytes_for(part.scale_dtype, place.index / part.granularity);
  }
  if (!scales.defined() || token / page_size >= max_pages) return nullptr;
  const std::int64_t page =
      scales.page_table[sequence * scales.page_table_stride + token / page_size];
  if (page >= scales.num_pages) return nullptr;
  // The slot rounds down: column 63 at granularity 64 belongs to slot 0.
  const std::int64_t offset = page * scales.page_stride + token % page_size * scales.token_stride +
                              head * scales.head_stride +
                              column / part.granularity * scales.slot_stride;
  return scales.data + bytes_for(scales.dtype, offset);
}

double KvLayerView::load_scale(std::int64_t sequence, std::int64_t head, std::int64_t token,
                               std::int32_t column) const {
  const RowPart& part = row_format.parts[row_format.locate(column).part];
  if (part.scale_source == ScaleSource::none) return 1.0;
  const std::byte* address = scale_address(sequence, head, token, column);
  return address == nullptr ? 0.0 : load_element(address, scale_dtype(*this, part), 0);
}

void KvLayerView::store_scale(std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int32_t column, double scale) const {
  const RowPart& part = row_format.parts[row_format.locate(column).part];
  if (part.scale_source == ScaleSource::plane && scales.is_static()) return;
  std::byte* address = scale_address(sequence, head, token, column);
  if (address != nullptr) store_element(address, scale_dtype(*this, part), 0, scale);
}

}  // namespace quire
