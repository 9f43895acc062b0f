// SPDX-License-Identifier: Apache-2.0
#include "quire/slotted_kv_operand.h"

#include "quire/error.h"
#include "quire/paged_kv_operand.h"

namespace quire {

SlottedKvOperand::SlottedKvOperand(const KvLayerView& view, const TensorView& slots)
    : view_(view), slots_(SlotList::of(slots)), num_slots_(slots.shape[0]) {
  if (slots.rank != 1 || (slots.dtype != DType::i64 && slots.dtype != DType::i32)) {
    throw Error(ErrorCode::invalid_value, "SlottedKvOperand", "slots", "i64 or i32 [tokens]",
                slots.describe());
  }
}

KvHeads SlottedKvOperand::heads() const {
  return PagedKvOperand(view_).heads();
}

PageSlot SlottedKvOperand::place_of(std::int64_t slot, std::int64_t num_pages,
                                    std::int64_t page_size) {
  if (slot < 0) return {};
  const std::int64_t page = slot / page_size;
  if (page >= num_pages) return {};
  return {.page = page, .slot = slot - page * page_size};
}

void SlottedKvOperand::locate(std::int64_t /*sequence*/, std::int64_t head, std::int64_t first,
                              std::int64_t count, RowAddress* rows) const {
  const ScaleLayerView& scales = view_.scales;
  for (std::int64_t i = 0; i < count; ++i) {
    const PageSlot place = place_of(slots_.at(first + i), view_.num_pages, view_.page_size);
    const bool has_scales = place.exists() && scales.defined() && place.page < scales.num_pages;
    rows[i] = {.row = place.exists() ? view_.row_in(place.page, place.slot, head) : nullptr,
               .plane = has_scales ? scales.plane_in(place.page, place.slot, head) : nullptr};
  }
}

}  // namespace quire
