// SPDX-License-Identifier: Apache-2.0
#include "quire/paged_kv_cache.h"

#include <algorithm>

#include "quire/error.h"

namespace quire {

RowFormat PagedKVCache::format() const {
  if (row_format.has_value()) return *row_format;
  const auto width = static_cast<std::int32_t>(blocks.shape[5]);
  if (!scales.has_value()) return RowFormat::uniform(blocks.dtype, width);
  const std::int64_t slots = std::max<std::int64_t>(scales->shape[5], 1);
  const auto granularity = static_cast<std::int32_t>((width + slots - 1) / slots);
  return RowFormat::scaled(blocks.dtype, width, granularity, scales->dtype);
}

RowFormat PagedKVCache::value_format() const {
  const bool is_plain = !row_format.has_value() && !scales.has_value();
  if (!value_blocks.has_value() || !is_plain) return format();
  return RowFormat::uniform(value_blocks->dtype, static_cast<std::int32_t>(value_blocks->shape[5]));
}

bool PagedKVCache::has_static_scales() const {
  if (!scales.has_value()) return false;
  if (static_scales.has_value()) return *static_scales;
  const auto is_broadcast = [this](int dim) {
    return scales->shape[dim] > 1 && scales->strides[dim] == 0;
  };
  constexpr int kPage = 0;
  constexpr int kToken = 3;
  if (scales->shape[kPage] > 1 || scales->shape[kToken] > 1) {
    return is_broadcast(kPage) || is_broadcast(kToken);
  }
  for (int dim = 0; dim < scales->rank; ++dim) {
    if (is_broadcast(dim)) return true;  // what several heads or layers share cannot be written
  }
  return scales->strides[kPage] == 0 && scales->strides[kToken] == 0;
}

PageCursor PagedKVCache::pages() const {
  return {.page_table = page_table.as<std::uint32_t>(),
          .row_stride = page_table.strides[0],
          .max_pages = max_pages(),
          .num_pages = num_pages(),
          .page_size = page_size()};
}

PageCursor PagedKVCache::scale_pages() const {
  const TensorView& table = scales_page_table.has_value() ? *scales_page_table : page_table;
  return {.page_table = table.as<std::uint32_t>(),
          .row_stride = table.strides[0],
          .max_pages = max_pages(),
          .num_pages = scales.has_value() ? scales->shape[0] : 0,
          .page_size = page_size()};
}

KvLayerView PagedKVCache::key(std::int64_t layer) const {
  return layer_view(layer, 0);
}

KvLayerView PagedKVCache::value(std::int64_t layer) const {
  if (is_mla()) {
    throw Error(ErrorCode::invalid_value, "PagedKVCache", "blocks",
                "[pages, 2, layers, …], or value_blocks, to have values", blocks.describe());
  }
  return layer_view(layer, 1);
}

KvLayerView PagedKVCache::layer_view(std::int64_t layer, std::int64_t kv) const {
  if (layer < 0 || layer >= num_layers()) {
    throw Error(ErrorCode::invalid_value, "PagedKVCache", "layer",
                "in [0, " + std::to_string(num_layers()) + ")", std::to_string(layer));
  }
  const bool has_own_pool = kv == 1 && value_blocks.has_value();
  const TensorView& pool = has_own_pool ? *value_blocks : blocks;
  const std::int64_t side = has_own_pool ? 0 : kv * pool.strides[1];
  const auto to_bytes = [&](std::int64_t elements) { return bytes_for(pool.dtype, elements); };
  KvLayerView view;
  view.data = pool.as<std::byte>() + to_bytes(side + layer * pool.strides[2]);
  view.row_format = has_own_pool ? value_format() : format();
  view.num_pages = num_pages();
  view.page_size = static_cast<std::int32_t>(page_size());
  view.num_heads = static_cast<std::int32_t>(num_kv_heads());
  // Nobody multiplies the stride of a dimension of size 1, which may be any number: too large a one wraps around.
  const auto stride_bytes = [&](std::size_t axis) {
    const auto elements = static_cast<std::uint64_t>(pool.strides[axis]);
    return static_cast<std::int64_t>(elements * static_cast<std::uint64_t>(bits(pool.dtype) / 8));
  };
  view.page_stride_bytes = stride_bytes(0);
  view.token_stride_bytes = stride_bytes(3);
  view.head_stride_bytes = stride_bytes(4);
  const PageCursor own_pages = pages();
  view.page_table = own_pages.page_table;
  view.page_table_stride = own_pages.row_stride;
  view.max_pages = own_pages.max_pages;
  view.cache_lengths = cache_lengths.as<std::uint32_t>();
  view.batch = batch();
  if (!scales.has_value()) return view;

  const PageCursor own_scale_pages = scale_pages();
  view.scales = {
      .data = scales->as<std::byte>() +
              bytes_for(scales->dtype, kv * scales->strides[1] + layer * scales->strides[2]),
      .dtype = scales->dtype,
      .num_pages = scales->shape[0],
      .page_stride = scales->strides[0],
      .token_stride = scales->strides[3],
      .head_stride = scales->strides[4],
      .slot_stride = scales->strides[5],
      .num_slots = static_cast<std::int32_t>(scales->shape[5]),
      .are_static = has_static_scales(),
      .page_table = own_scale_pages.page_table,
      .page_table_stride = own_scale_pages.row_stride,
  };
  return view;
}

}  // namespace quire
