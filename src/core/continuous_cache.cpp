// SPDX-License-Identifier: Apache-2.0
#include "quire/continuous_cache.h"

#include "quire/error.h"

namespace quire {

PagedKVCache continuous_cache(const TensorView& blocks, const TensorView& cache_lengths,
                              const TensorView& slots) {
  const auto reject = [](const char* argument, const char* expected, const TensorView& actual) {
    throw Error(ErrorCode::invalid_value, "continuous_cache", argument, expected,
                actual.describe());
  };
  if (blocks.rank != 6) {
    reject("blocks", "[num_slots, kv, num_layers, max_length, num_kv_heads, row]", blocks);
  }
  if (cache_lengths.rank != 1 || cache_lengths.dtype != DType::u32) {
    reject("cache_lengths", "u32[batch]", cache_lengths);
  }
  if (slots.rank != 1 || slots.dtype != DType::u32 || slots.shape[0] != cache_lengths.shape[0]) {
    reject("slots", "u32[batch], as long as cache_lengths", slots);
  }
  TensorView table = slots;
  table.rank = 2;
  table.shape[1] = 1;
  table.strides[1] = 1;
  return {.blocks = blocks, .cache_lengths = cache_lengths, .page_table = table};
}

}  // namespace quire
