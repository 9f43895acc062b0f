// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/page_pool.h"

#include <algorithm>
#include <span>
#include <vector>

namespace quire::tools::demo {
namespace {

// Rows of several parts are handed over as bytes, uniform rows as their elements.
DType block_dtype(const RowFormat& format) {
  return format.is_uniform() ? format.parts[0].dtype : DType::u8;
}

std::vector<std::int64_t> pool_shape(const PagePoolOptions& options, std::int64_t row) {
  return {options.num_pages, options.is_mla ? 1 : 2, options.num_layers,
          options.page_size, options.num_kv_heads,   row};
}

void fill_page(std::span<std::byte> pool, std::int64_t num_pages, std::uint32_t page) {
  const std::size_t page_bytes = pool.size() / static_cast<std::size_t>(num_pages);
  std::ranges::fill(pool.subspan(page * page_bytes, page_bytes), std::byte{0xff});
}

}  // namespace

TensorView on_host(TensorView tensor) {
  tensor.device = {};
  return tensor;
}

PagedKVCache on_host(PagedKVCache cache) {
  cache.blocks = on_host(cache.blocks);
  cache.cache_lengths = on_host(cache.cache_lengths);
  cache.page_table = on_host(cache.page_table);
  if (cache.scales) cache.scales = on_host(*cache.scales);
  return cache;
}

PagePool::PagePool(const PagePoolOptions& options)
    : options_(options),
      blocks_(block_dtype(options.row_format),
              pool_shape(options, options.row_format.is_uniform() ? options.row_format.width()
                                                                  : options.row_format.row_bytes)),
      scales_(DType::f32, pool_shape(options, options.row_format.plane_slots())) {
  for (std::int64_t page = 0; page < options.num_pages; ++page)
    poison(static_cast<std::uint32_t>(page));
}

PagedKVCache PagePool::view(const TensorView& page_table, const TensorView& cache_lengths) const {
  PagedKVCache cache{.blocks = blocks_.view(),
                     .cache_lengths = cache_lengths,
                     .page_table = page_table,
                     .row_format = options_.row_format};
  if (options_.row_format.uses_plane()) cache.scales = scales_.view();
  return cache;
}

void PagePool::poison(std::uint32_t page) {
  fill_page(blocks_.bytes(), options_.num_pages, page);
  fill_page(scales_.bytes(), options_.num_pages, page);
}

}  // namespace quire::tools::demo
