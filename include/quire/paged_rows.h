// SPDX-License-Identifier: Apache-2.0
// Rows of a paged cache layer: what PagedKvOperand and PagedScalesOperand share.
//
//   row = page_table[sequence, token / page_size] · rows_per_page_stride + token % page_size
//
// Layer and K/V do not appear: they are in the view's base address. rows_per_page_stride spans all
// layers and both of K and V, so rows between one page's end and the next page's start belong to
// other layers.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/host_device.h"
#include "quire/kv_layer_view.h"
#include "quire/kv_operand.h"
#include "quire/operand_checks.h"
#include "quire/sparse_index.h"

namespace quire {

// page_size 0 in the config takes a cache whose page is a whole sequence slot (continuous_cache()):
// the table has one column, a tile is one run of rows, and the view says how long the slot is.
template <KvOperandConfig kRowsConfig> class PagedRows {
 public:
  static constexpr LengthMeaning kLengthMeaning = LengthMeaning::cached_before_call;

  // max_context_length: the caller's bound (PagedKVCache::max_cache_length), else all that the
  // table can hold.
  explicit PagedRows(const KvLayerView& view, std::optional<std::uint32_t> max_context_length)
      : view_(view),
        rows_per_page_stride_(checked_rows_per_page_stride(view, kRowsConfig)),
        max_context_length_(max_context_length.value_or(view.max_pages * view.page_size)) {}

  QUIRE_HOST_DEVICE std::uint32_t row_idx(std::uint32_t sequence, std::uint32_t token) const {
    const std::uint32_t row = first_row(page_in(value_table(sequence), token));
    return row == kUnassignedRow ? row : row + offset_in_page(token);
  }
  QUIRE_HOST_DEVICE std::int64_t num_kv_rows() const {
    if (view_.num_pages == 0) return 0;
    return (view_.num_pages - 1) * rows_per_page_stride_ + view_.page_size;
  }
  QUIRE_HOST_DEVICE std::uint32_t rows_per_page_stride() const { return rows_per_page_stride_; }
  QUIRE_HOST_DEVICE std::uint32_t cache_length(std::uint32_t sequence) const {
    return view_.cache_lengths[sequence];
  }
  QUIRE_HOST_DEVICE std::int64_t max_context_length() const { return max_context_length_; }

  // Never clips to the sequence's length: entries behind it are what the table holds there. Who
  // issues the loads says how many rows are valid (tile_loads.h). A tile inside one page keeps its
  // in-page offset whatever kBaseAlignment promises; a tile of several pages must start at a page.
  template <int kTileRows, int kBaseAlignment, CtaPair kPair = CtaPair::single>
  QUIRE_HOST_DEVICE PagedRowIndices<kTileRows, kRowsConfig.page_size, kPair> populate(
      std::uint32_t sequence, std::uint32_t base_row) const {
    using Tile = PagedRowIndices<kTileRows, kRowsConfig.page_size, kPair>;
    expect_tile_alignment(base_row, kBaseAlignment);
    Tile tile;
    if constexpr (Tile::kNumPages == 1) {
      tile.rows[0] = row_idx(sequence, base_row);
    } else {
      static_assert(
          kBaseAlignment % kRowsConfig.page_size == 0,
          "populate: a tile of several pages starts at a page: base_alignment % page_size == 0");
      constexpr int kChunk = table_chunk(kTileRows, kBaseAlignment, kRowsConfig.page_size);
      read_page_ids<Tile::kNumPages, kChunk>(value_table(sequence),
                                             base_row / kRowsConfig.page_size, tile.rows);
      for (std::uint32_t& entry : tile.rows) entry = first_row(entry);
    }
    return tile;
  }

  QUIRE_HOST_DEVICE std::int32_t get_tma_row(std::int32_t encoded_index) const {
    const SparsePosition position = decode_sparse_index(encoded_index, page_size());
    if (position.page < 0 || position.page >= view_.num_pages) return kNoSparseIndex;
    return static_cast<std::int32_t>(position.page * rows_per_page_stride_ + position.offset);
  }

 protected:
  QUIRE_HOST_DEVICE std::int32_t page_size() const {
    return kRowsConfig.page_size > 0 ? kRowsConfig.page_size : view_.page_size;
  }
  QUIRE_HOST_DEVICE std::uint32_t offset_in_page(std::uint32_t token) const {
    return token % static_cast<std::uint32_t>(page_size());
  }
  QUIRE_HOST_DEVICE PageTableRow value_table(std::uint32_t sequence) const {
    return {view_.page_table + sequence * view_.page_table_stride, view_.max_pages};
  }
  QUIRE_HOST_DEVICE PageTableRow scales_table(std::uint32_t sequence) const {
    return {view_.scales.page_table + sequence * view_.scales.page_table_stride, view_.max_pages};
  }
  QUIRE_HOST_DEVICE std::uint32_t page_in(PageTableRow table, std::uint32_t token) const {
    const std::uint32_t column = token / static_cast<std::uint32_t>(page_size());
    return column < table.num_columns ? table.entries[column] : kUnassignedPage;
  }
  // The sentinels are ids ≥ num_pages; multiplying one blindly would address another allocation.
  QUIRE_HOST_DEVICE std::uint32_t first_row(std::uint32_t page) const {
    return page < view_.num_pages ? page * rows_per_page_stride_ : kUnassignedRow;
  }
  // Scale of a column through the scales' own table and page count, or null.
  QUIRE_HOST_DEVICE const std::byte* scale_address(std::uint32_t sequence, std::uint32_t token,
                                                   std::uint32_t head, std::int32_t column) const {
    const ScaleLayerView& scales = view_.scales;
    const std::uint32_t page = page_in(scales_table(sequence), token);
    if (page >= scales.num_pages) return nullptr;
    const std::int64_t slot = column / kRowsConfig.granularity;
    const std::int64_t element = page * scales.page_stride +
                                 offset_in_page(token) * scales.token_stride +
                                 head * scales.head_stride + slot * scales.slot_stride;
    return scales.data + bytes_for(kRowsConfig.scale_dtype, element);
  }

  KvLayerView view_;
  std::uint32_t rows_per_page_stride_;
  std::int64_t max_context_length_;
};

}  // namespace quire
