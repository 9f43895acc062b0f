// SPDX-License-Identifier: Apache-2.0
// Where a new token of a ragged batch stands: its sequence, its position, and its rows in the pages.
// All of it is read on the device, so that a recorded launch serves other lengths.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/rows/ragged.cuh"
#include "quire/kv_layer_view.h"

namespace quire::cuda {

struct TokenPlace {
  std::int64_t sequence = -1;  // -1: the token belongs to nobody (past the last offset)
  std::int64_t position = 0;   // absolute: cache_length + index among the new tokens

  __device__ bool exists() const { return sequence >= 0; }
};

// row_offsets u32 [batch + 1], cache_lengths u32 [batch].
__device__ inline TokenPlace place_of_token(const std::uint32_t* row_offsets,
                                            const std::uint32_t* cache_lengths, std::int64_t batch,
                                            std::int64_t token) {
  if (batch == 0 || token >= row_offsets[batch]) return {};
  const int sequence =
      sequence_of(row_offsets, static_cast<int>(batch), static_cast<std::uint32_t>(token));
  return {.sequence = sequence,
          .position = cache_lengths[sequence] + (token - row_offsets[sequence])};
}

// Column of the page table and slot in the page.
struct PageSlot {
  std::int64_t column;
  std::int64_t slot;
};

// In 32 bits wherever the position fits: a 64-bit division takes as long as a load from L2.
__device__ inline PageSlot page_slot(std::int64_t position, std::int32_t page_size) {
  if (position <= 0xffffffff) {
    const auto low = static_cast<std::uint32_t>(position);
    const std::uint32_t column = low / static_cast<std::uint32_t>(page_size);
    return {column, low - column * static_cast<std::uint32_t>(page_size)};
  }
  return {position / page_size, position % page_size};
}

// The row of head 0 of a token, null where its page is unassigned or the token is nobody's.
__device__ inline std::byte* first_row(const KvLayerView& view, const TokenPlace& place) {
  if (!place.exists()) return nullptr;
  const PageSlot at = page_slot(place.position, view.page_size);
  if (at.column >= view.max_pages) return nullptr;
  const std::int64_t page = view.page_table[place.sequence * view.page_table_stride + at.column];
  if (page >= view.num_pages) return nullptr;
  return view.data + page * view.page_stride_bytes + at.slot * view.token_stride_bytes;
}

// The first scale of head 0 of a token in the scales tensor, null where there is none.
__device__ inline std::byte* first_scale(const KvLayerView& view, const TokenPlace& place) {
  const ScaleLayerView& scales = view.scales;
  if (scales.data == nullptr || !place.exists()) return nullptr;
  const PageSlot at = page_slot(place.position, view.page_size);
  if (at.column >= view.max_pages) return nullptr;
  const std::int64_t page =
      scales.page_table[place.sequence * scales.page_table_stride + at.column];
  if (page >= scales.num_pages) return nullptr;
  const std::int64_t element = page * scales.page_stride + at.slot * scales.token_stride;
  return scales.data + element * (bits(scales.dtype) / 8);
}

}  // namespace quire::cuda
