// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/paging/attention_views.h"

#include <algorithm>

namespace quire::cuda {
namespace {

// rows [total_keys, heads, row]. Strides of dimensions of size 1 may be anything: tensor maps want sound ones.
KvLayerView ragged_view(const TensorView& rows, const FlashAttentionArgs& args) {
  const auto width = static_cast<std::int32_t>(rows.shape[2]);
  const auto* offsets = args.key_offsets->as<const std::uint32_t>();
  KvLayerView view;
  // Without a key there may be no memory; nothing is read, but a tensor map needs an address.
  view.data = rows.shape[0] > 0 ? rows.as<std::byte>() : args.q.as<std::byte>();
  view.row_format = RowFormat::uniform(rows.dtype, width);
  view.num_pages = 1;
  view.page_size = static_cast<std::int32_t>(std::max<std::int64_t>(rows.shape[0], 1));
  view.num_heads = static_cast<std::int32_t>(rows.shape[1]);
  const std::int64_t row_bytes = view.row_format.row_bytes;
  view.head_stride_bytes =
      rows.shape[1] > 1 ? bytes_for(rows.dtype, rows.strides[1]) : std::int64_t{row_bytes};
  view.token_stride_bytes =
      rows.shape[0] > 1 ? bytes_for(rows.dtype, rows.strides[0]) : rows.shape[1] * row_bytes;
  view.page_stride_bytes = view.page_size * view.token_stride_bytes;
  // Offsets begin with 0, the id of the only page.
  view.page_table = offsets;
  view.page_table_stride = 0;
  view.max_pages = 1;
  view.cache_lengths = args.cache.cache_lengths.as<const std::uint32_t>();
  view.batch = args.key_offsets->shape[0] - 1;
  view.first_rows = offsets;
  return view;
}

}  // namespace

AttentionViews attention_views(const FlashAttentionArgs& args) {
  if (args.key_offsets.has_value()) {
    return {.keys = ragged_view(*args.k, args), .values = ragged_view(*args.v, args)};
  }
  const KvLayerView keys = args.cache.key(args.layer).with_keys(args.key_lengths);
  if (args.cache.is_mla()) return {.keys = keys, .values = keys};
  return {.keys = keys, .values = args.cache.value(args.layer).with_keys(args.key_lengths)};
}

}  // namespace quire::cuda
