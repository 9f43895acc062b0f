// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/paged_rows.h"

#include <algorithm>

namespace quire::cpu {
namespace {

// Slot 0 of a token's scales, null where it has none.
const std::byte* plane_of(const KvLayerView& view, std::int64_t sequence, std::int64_t head,
                          std::int64_t token) {
  const ScaleLayerView& scales = view.scales;
  if (!scales.defined()) return nullptr;
  const std::int64_t column = token / view.page_size;
  const std::int64_t page = scales.page_table[sequence * scales.page_table_stride + column];
  if (page >= scales.num_pages) return nullptr;
  const std::int64_t offset = page * scales.page_stride +
                              token % view.page_size * scales.token_stride +
                              head * scales.head_stride;
  return scales.data + bytes_for(scales.dtype, offset);
}

HeadStrides head_strides(const KvLayerView& view) {
  return {.row_bytes = view.head_stride_bytes,
          .plane_bytes =
              view.scales.defined() ? bytes_for(view.scales.dtype, view.scales.head_stride) : 0};
}

}  // namespace

PagedRows::PagedRows(const PagedKVCache& cache, std::int64_t layer)
    : is_mla_(cache.is_mla()),
      keys_(cache.key(layer)),
      values_(is_mla_ ? keys_ : cache.value(layer)),
      key_encoding_(keys_),
      value_encoding_(values_) {}

KeySource PagedRows::source(const State& state) const {
  return {.locate = locate,
          .state = &state,
          .key_plan = key_encoding_.plan(),
          .value_plan = value_encoding_.plan(),
          .key_heads = head_strides(keys_),
          .value_heads = head_strides(values_),
          .shared_rows = is_mla_};
}

void PagedRows::locate_keys(const KvLayerView& view, std::int64_t sequence, std::int64_t head,
                            std::int64_t first, int count, RowAddress* addresses) {
  for (int i = 0; i < count;) {
    const std::int64_t token = first + i;
    const std::int64_t in_page = token % view.page_size;
    const int run = static_cast<int>(std::min<std::int64_t>(count - i, view.page_size - in_page));
    const std::byte* row = view.row(sequence, token, head);
    const std::byte* plane = row == nullptr ? nullptr : plane_of(view, sequence, head, token);
    const std::int64_t plane_stride =
        plane == nullptr ? 0 : bytes_for(view.scales.dtype, view.scales.token_stride);
    for (int j = 0; j < run; ++j, ++i) {
      addresses[i] = {.row = row == nullptr ? nullptr : row + j * view.token_stride_bytes,
                      .plane = plane == nullptr ? nullptr : plane + j * plane_stride};
    }
  }
}

void PagedRows::locate(const void* state, std::int64_t head, std::int64_t first, int count,
                       RowAddress* keys, RowAddress* values) {
  const State& own = *static_cast<const State*>(state);
  locate_keys(own.rows->keys_, own.sequence, head, first, count, keys);
  if (!own.rows->is_mla_) {
    locate_keys(own.rows->values_, own.sequence, head, first, count, values);
  }
}

}  // namespace quire::cpu
