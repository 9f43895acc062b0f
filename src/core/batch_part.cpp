// SPDX-License-Identifier: Apache-2.0
#include "core/batch_part.h"

namespace quire {

TensorView rows_of(const TensorView& tensor, std::int64_t first, std::int64_t count) {
  TensorView part = tensor;
  part.data = tensor.as<std::byte>() + bytes_for(tensor.dtype, first * tensor.strides[0]);
  part.shape[0] = count;
  return part;
}

PagedKVCache sequences_of(const PagedKVCache& cache, std::int64_t first, std::int64_t count) {
  PagedKVCache part = cache;
  part.cache_lengths = rows_of(cache.cache_lengths, first, count);
  part.page_table = rows_of(cache.page_table, first, count);
  if (cache.scales_page_table.has_value()) {
    part.scales_page_table = rows_of(*cache.scales_page_table, first, count);
  }
  return part;
}

}  // namespace quire
