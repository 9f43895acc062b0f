// SPDX-License-Identifier: Apache-2.0
// The paged KV cache of all layers, as the user hands it over: views of the page pool, the page
// table and the lengths.
//
//   blocks         [num_pages, kv, num_layers, page_size, num_kv_heads, row]
//                  kv = 2 (K, V), or 1 (MLA: K only)
//   cache_lengths  u32 [batch]             tokens cached before this call; ops never change it
//   page_table     u32 [batch, max_pages]  column j: tokens [j · page_size, (j + 1) · page_size)
//   scales         [num_scale_pages, kv, num_layers, page_size, num_kv_heads, slots]
//                  any strides, 0 = broadcast (see static_scales)
//   value_blocks   [num_pages, 1, num_layers, page_size, num_kv_heads, value row]
//                  V where it is a tensor of its own, with strides and a width of its own; blocks is then
//                  K's, kv = 1. Page ids count for both. Scales keep kv = 2.
//
// Lengths and page table may be left out where an op takes slots instead (store): all others ask for them.
//
// Page, K/V, layer, token and head strides are free, so NHD and HND pools both fit; the row itself
// is contiguous. An entry equal to num_pages (or 0xFFFFFFFF) means "no page": loads there read as
// zero and are masked, stores are dropped.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/export.h"
#include "quire/kv_layer_view.h"
#include "quire/page_cursor.h"
#include "quire/tensor_view.h"

namespace quire {

struct QUIRE_API PagedKVCache {
  TensorView blocks;
  TensorView cache_lengths{};
  TensorView page_table{};
  std::optional<TensorView> scales{};
  std::optional<TensorView> scales_page_table{};  // absent: scales use page_table
  // Whether the scales are calibrated ones, which ops read and never write. Absent: as their strides say,
  // static where one scale serves several pages or tokens. A dimension of size 1 has no stride that says
  // anything, so a pool of a single token (one page of size 1) says it here, unless another dimension is
  // broadcast or both strides are 0.
  std::optional<bool> static_scales{};
  std::optional<RowFormat> row_format{};  // absent: uniform, or scaled when scales are given
  // Upper bounds for grids and workspace (a graph-capture bound, say), never for a request's own
  // work.
  std::optional<std::uint32_t> max_seq_length{};
  std::optional<std::uint32_t> max_cache_length{};
  std::optional<TensorView> value_blocks{};

  std::int64_t num_pages() const { return blocks.shape[0]; }
  bool is_mla() const { return blocks.shape[1] == 1 && !value_blocks.has_value(); }
  std::int64_t num_layers() const { return blocks.shape[2]; }
  std::int64_t page_size() const { return blocks.shape[3]; }
  std::int64_t num_kv_heads() const { return blocks.shape[4]; }
  std::int64_t batch() const { return cache_lengths.shape[0]; }
  std::int64_t max_pages() const { return page_table.shape[1]; }
  DType dtype() const { return blocks.dtype; }

  // The format in force: the given one, or the one that blocks and scales imply
  // (granularity = ceil(row / slots)).
  RowFormat format() const;
  // That of V's rows: the same, but for the width of plain rows in value_blocks.
  RowFormat value_format() const;
  // static_scales, or what the strides imply; false without scales.
  bool has_static_scales() const;
  std::int64_t head_dim() const { return format().width(); }

  // Views of one layer. They throw Error for a layer out of range, and value() for an MLA cache.
  KvLayerView key(std::int64_t layer) const;
  KvLayerView value(std::int64_t layer) const;
  std::uint32_t cache_length(std::int64_t sequence) const {
    return cache_lengths.as<std::uint32_t>()[sequence * cache_lengths.strides[0]];
  }
  // Where tokens stand, in the pages of blocks and of scales (none: no scales).
  PageCursor pages() const;
  PageCursor scale_pages() const;

 private:
  KvLayerView layer_view(std::int64_t layer, std::int64_t kv) const;
};

}  // namespace quire
