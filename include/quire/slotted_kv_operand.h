// SPDX-License-Identifier: Apache-2.0
// Rows of a paged cache that the caller names by slots, instead of by sequence and position: token i stands at
//
//   slots[i] = page · page_size + row of the page
//
// A negative slot means "nowhere", and so does one past the last page: no memory is ever behind it.
//
//   const SlottedKvOperand rows(cache.key(layer), slots);
//
// All tokens are one sequence, 0, in which they stand in the order of the slots.
#pragma once

#include <cstdint>

#include "quire/export.h"
#include "quire/kv_layer_view.h"
#include "quire/kv_operand.h"
#include "quire/tensor_view.h"

namespace quire {

// i64 or i32 [tokens], of any stride.
struct SlotList {
  const void* data = nullptr;
  std::int64_t stride = 1;  // elements
  bool is_wide = true;      // i64

  static SlotList of(const TensorView& slots) {
    return {.data = slots.data, .stride = slots.strides[0], .is_wide = slots.dtype == DType::i64};
  }
  QUIRE_HOST_DEVICE bool defined() const { return data != nullptr; }
  QUIRE_HOST_DEVICE std::int64_t at(std::int64_t token) const {
    return is_wide ? static_cast<const std::int64_t*>(data)[token * stride]
                   : static_cast<const std::int32_t*>(data)[token * stride];
  }
};

class QUIRE_API SlottedKvOperand {
 public:
  // Throws Error unless slots are i64 or i32 [tokens].
  SlottedKvOperand(const KvLayerView& view, const TensorView& slots);

  RowLayout layout() const { return view_.layout(); }
  KvHeads heads() const;
  // The tokens of the call are all there are.
  std::int64_t num_keys(std::int64_t /*sequence*/, std::int64_t /*new_tokens*/) const {
    return num_slots_;
  }
  std::int64_t first_position(std::int64_t /*sequence*/, std::int64_t /*new_tokens*/) const {
    return 0;
  }
  void locate(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t count,
              RowAddress* rows) const;

  // Where a slot is; no page where it is negative or past the pool.
  static PageSlot place_of(std::int64_t slot, std::int64_t num_pages, std::int64_t page_size);

 private:
  KvLayerView view_;
  SlotList slots_;
  std::int64_t num_slots_;
};

}  // namespace quire
