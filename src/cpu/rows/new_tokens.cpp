// SPDX-License-Identifier: Apache-2.0
#include "cpu/rows/new_tokens.h"

#include <algorithm>

namespace quire::cpu {

void NewTokens::locate(std::int64_t first, std::span<TokenPlace> places) const {
  const std::uint32_t* end = offsets_ + view_.batch + 1;
  std::int64_t sequence = std::upper_bound(offsets_, end, first) - offsets_ - 1;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t token = first + static_cast<std::int64_t>(i);
    while (token >= offsets_[sequence + 1]) ++sequence;  // empty sequences own none
    const std::int64_t position = view_.cache_length(sequence) + token - offsets_[sequence];
    places[i] = {.token = token,
                 .sequence = sequence,
                 .position = position,
                 .row = view_.row(sequence, position, 0),
                 .plane = plane_of(sequence, position)};
  }
}

std::byte* NewTokens::plane_of(std::int64_t sequence, std::int64_t position) const {
  const ScaleLayerView& scales = view_.scales;
  const std::int64_t column = position / view_.page_size;
  if (!scales.defined() || column >= view_.max_pages) return nullptr;
  const std::int64_t page = scales.page_table[sequence * scales.page_table_stride + column];
  if (page >= scales.num_pages) return nullptr;
  const std::int64_t offset =
      page * scales.page_stride + position % view_.page_size * scales.token_stride;
  return scales.data + bytes_for(scales.dtype, offset);
}

}  // namespace quire::cpu
