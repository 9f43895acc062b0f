// SPDX-License-Identifier: Apache-2.0
// The memory behind the pages, for some layers with rows of one format. A model may have several
// pools; a page id means the same page in all of them.
#pragma once

#include <cstdint>

#include "quire/paged_kv_cache.h"
#include "tools/demo/tensor.h"

namespace quire::tools::demo {

struct PagePoolOptions {
  std::int64_t num_pages = 0;
  std::int64_t page_size = 16;
  std::int64_t num_layers = 1;
  std::int64_t num_kv_heads = 1;
  bool is_mla = false;
  RowFormat row_format{};
};

// The same memory, which the host sees too, without the device's name.
TensorView on_host(TensorView tensor);
PagedKVCache on_host(PagedKVCache cache);

class PagePool {
 public:
  explicit PagePool(const PagePoolOptions& options);  // every page poisoned

  // page_table u32 [batch, max_pages], cache_lengths u32 [batch].
  PagedKVCache view(const TensorView& page_table, const TensorView& cache_lengths) const;

  // Fills rows and scales of a page with 0xff: NaN in every float type.
  void poison(std::uint32_t page);
  const PagePoolOptions& options() const { return options_; }

 private:
  PagePoolOptions options_;
  Tensor blocks_;  // [num_pages, kv, num_layers, page_size, num_kv_heads, row]
  Tensor scales_;  // the same with slots at the end; empty without a scale plane
};

}  // namespace quire::tools::demo
