// SPDX-License-Identifier: Apache-2.0
// The K or V of one layer of a paged cache as an operand (KVCacheMHAOperand of the original).
//
//   const PagedKvOperand keys(cache.key(layer));
//
// As a matrix of rows (tile_builders.h):
//   row = page · rows_per_page_stride + token % page_size
// Layer and K/V do not appear: they are in the view's base address. rows_per_page_stride spans all
// layers and both of K and V, so rows between one page's end and the next page's start belong to
// other layers.
#pragma once

#include <cstdint>

#include "quire/export.h"
#include "quire/kv_layer_view.h"
#include "quire/kv_operand.h"

namespace quire {

class QUIRE_API PagedKvOperand {
 public:
  explicit PagedKvOperand(const KvLayerView& view) : view_(view) {}

  RowLayout layout() const { return view_.layout(); }
  KvHeads heads() const;
  std::int64_t num_keys(std::int64_t sequence, std::int64_t new_tokens) const {
    return view_.num_keys(sequence, new_tokens);
  }
  std::int64_t first_position(std::int64_t sequence, std::int64_t /*new_tokens*/) const {
    return view_.cache_length(sequence);
  }
  // Pages are looked up once for all of their keys.
  void locate(std::int64_t sequence, std::int64_t head, std::int64_t first, std::int64_t count,
              RowAddress* rows) const;

  // Both throw Error unless pages are whole numbers of rows apart and rows fit 30 bits, so that any
  // row from 2^30 on lies outside every descriptor and loads zeros.
  std::int64_t rows_per_page_stride() const;
  // A mixed row counts as if it were all of its first part's dtype: 640 columns for 512 fp8 and 64
  // bf16; the rope tail is then columns_as() of the matrix.
  RowMatrix row_matrix() const;

 private:
  KvLayerView view_;
};

}  // namespace quire
