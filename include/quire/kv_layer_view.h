// SPDX-License-Identifier: Apache-2.0
// One K or one V cache of one layer: the memory behind PagedKvOperand, and what CUDA kernels
// receive. Trivially copyable; views, never owners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "quire/export.h"
#include "quire/host_device.h"
#include "quire/page_cursor.h"
#include "quire/row_format.h"
#include "quire/row_layout.h"
#include "quire/tensor_view.h"

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
  // The scales of a row of a page.
  std::byte* plane_in(std::int64_t page, std::int64_t slot, std::int64_t head) const {
    return data + bytes_for(dtype, page * page_stride + slot * token_stride + head * head_stride);
  }
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
  const std::uint32_t* key_lengths = nullptr;  // [batch]; null: cache length + new tokens

  // The same rows, of which sequences have so many keys: u32 [batch], or what they have anyway.
  KvLayerView with_keys(const std::optional<TensorView>& lengths) const {
    KvLayerView view = *this;
    if (lengths.has_value()) view.key_lengths = lengths->as<const std::uint32_t>();
    return view;
  }

  // The same rows, of the sequences [first, first + count) alone.
  KvLayerView sequences(std::int64_t first, std::int64_t count) const {
    const auto from = [first](const std::uint32_t* list, std::int64_t stride = 1) {
      return list == nullptr ? nullptr : list + first * stride;
    };
    KvLayerView view = *this;
    view.batch = count;
    view.page_table = from(page_table, page_table_stride);
    view.cache_lengths = from(cache_lengths);
    view.key_lengths = from(key_lengths);
    view.first_rows = from(first_rows);
    view.scales.page_table = from(scales.page_table, scales.page_table_stride);
    return view;
  }

  std::int32_t width() const { return row_format.width(); }
  std::uint32_t cache_length(std::int64_t sequence) const { return cache_lengths[sequence]; }
  // Keys of a sequence to which a call adds new_tokens.
  std::int64_t num_keys(std::int64_t sequence, std::int64_t new_tokens) const {
    return key_lengths != nullptr ? key_lengths[sequence] : cache_lengths[sequence] + new_tokens;
  }
  RowLayout layout() const {
    return {.format = row_format,
            .plane = {.dtype = scales.dtype,
                      .slot_stride = scales.slot_stride,
                      .are_static = scales.are_static}};
  }

  QUIRE_HOST_DEVICE PageCursor pages() const {
    return {.page_table = page_table,
            .row_stride = page_table_stride,
            .max_pages = max_pages,
            .num_pages = num_pages,
            .page_size = page_size};
  }
  PageCursor scale_pages() const {
    return {.page_table = scales.page_table,
            .row_stride = scales.page_table_stride,
            .max_pages = max_pages,
            .num_pages = scales.num_pages,
            .page_size = page_size};
  }
  QUIRE_HOST_DEVICE bool is_mapped(std::int64_t sequence, std::int64_t token) const {
    return pages().find(sequence, token).exists();
  }
  // A row of a page.
  QUIRE_HOST_DEVICE std::byte* row_in(std::int64_t page, std::int64_t slot,
                                      std::int64_t head) const {
    return data + page * page_stride_bytes + slot * token_stride_bytes + head * head_stride_bytes;
  }
  // Start of a row, or null where the page is unassigned.
  QUIRE_HOST_DEVICE std::byte* row(std::int64_t sequence, std::int64_t token,
                                   std::int64_t head) const {
    const PageSlot place = pages().find(sequence, token);
    return place.exists() ? row_in(place.page, place.slot, head) : nullptr;
  }

  // One column of a row, as RowLayout (row_layout.h) reads and writes it. Stores are dropped where
  // the page is unassigned.
  double load(std::int64_t sequence, std::int64_t head, std::int64_t token,
              std::int32_t column) const;
  double load_quantized(std::int64_t sequence, std::int64_t head, std::int64_t token,
                        std::int32_t column) const;
  double load_scale(std::int64_t sequence, std::int64_t head, std::int64_t token,
                    std::int32_t column) const;
  void store(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int32_t column,
             double value) const;
  void store_scale(std::int64_t sequence, std::int64_t head, std::int64_t token,
                   std::int32_t column, double scale) const;
};

}  // namespace quire
