// SPDX-License-Identifier: Apache-2.0
// One K or one V cache of one layer: what a kernel receives. Trivially copyable; views, never
// owners.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/export.h"
#include "quire/host_device.h"
#include "quire/row_format.h"

namespace quire {

// The scales of a layer view: strides in elements, 0 where one scale serves a whole dimension.
struct ScaleLayerView {
  // [num_pages, page_size, num_heads, num_slots], shifted to the layer and K/V
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t num_pages = 0;
  // full 6-D stride: kv · layers · page_size · heads · slots when contiguous
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t slot_stride = 0;
  std::int32_t num_slots = 0;
  // The user's, calibrated: ops read them and never write them.
  bool are_static = false;
  // [batch, max_pages], its own ids, the same column arithmetic
  const std::uint32_t* page_table = nullptr;
  std::int64_t page_table_stride = 0;

  bool defined() const { return data != nullptr; }
  bool is_static() const { return are_static; }
};

struct QUIRE_API KvLayerView {
  // [num_pages, page_size, num_heads, row], shifted to the layer and K/V
  std::byte* data = nullptr;
  RowFormat row_format{};
  std::int64_t num_pages = 0;
  std::int32_t page_size = 0;
  std::int32_t num_heads = 0;
  // Bytes, at run time: the page stride spans every layer and both of K and V, never page_size ·
  // heads · row alone.
  std::int64_t page_stride_bytes = 0;
  std::int64_t token_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;
  const std::uint32_t* page_table = nullptr;  // [batch, max_pages]
  std::int64_t page_table_stride = 0;
  std::int64_t max_pages = 0;
  const std::uint32_t* cache_lengths = nullptr;  // [batch], tokens cached before this call
  std::int64_t batch = 0;
  // [batch], null: all 0. The row of a sequence's first token, counted from its first page: rows of a ragged batch are one
  // page, in which sequences begin at their offsets.
  const std::uint32_t* first_rows = nullptr;
  ScaleLayerView scales{};

  std::int32_t width() const { return row_format.width(); }
  std::uint32_t cache_length(std::int64_t sequence) const { return cache_lengths[sequence]; }

  // Page that holds a token; an id ≥ num_pages is unassigned. Columns past the table are unassigned
  // too.
  QUIRE_HOST_DEVICE std::int64_t page_of(std::int64_t sequence, std::int64_t token) const {
    const std::int64_t column = token / page_size;
    return column < max_pages ? page_table[sequence * page_table_stride + column] : num_pages;
  }
  QUIRE_HOST_DEVICE bool is_mapped(std::int64_t sequence, std::int64_t token) const {
    return page_of(sequence, token) < num_pages;
  }
  // Start of a row, or null where the page is unassigned.
  QUIRE_HOST_DEVICE std::byte* row(std::int64_t sequence, std::int64_t token,
                                   std::int64_t head) const {
    const std::int64_t page = page_of(sequence, token);
    if (page >= num_pages) return nullptr;
    return data + page * page_stride_bytes + (token % page_size) * token_stride_bytes +
           head * head_stride_bytes;
  }

  // The value of a logical column: stored number × its scale, wherever the scale stands. 0 if
  // unassigned.
  double load(std::int64_t sequence, std::int64_t head, std::int64_t token,
              std::int32_t column) const;
  // The stored number alone.
  double load_quantized(std::int64_t sequence, std::int64_t head, std::int64_t token,
                        std::int32_t column) const;
  // The scale that belongs to a column: slot = column / granularity, rounded down. 1 for an
  // unscaled part.
  double load_scale(std::int64_t sequence, std::int64_t head, std::int64_t token,
                    std::int32_t column) const;
  // Rounds to the part's dtype (fp8 saturating) and stores; nothing is scaled here. Dropped if
  // unassigned.
  void store(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int32_t column,
             double value) const;
  // Writes the scale that belongs to a column. Dropped if unassigned, static, or the part has none.
  void store_scale(std::int64_t sequence, std::int64_t head, std::int64_t token,
                   std::int32_t column, double scale) const;

 private:
  std::byte* scale_address(std::int64_t sequence, std::int64_t head, std::int64_t token,
                           std::int32_t column) const;
};

}  // namespace quire
