// SPDX-License-Identifier: Apache-2.0
// Calls of the shapes that models have, which Hopper's own kernels take: the samples of tests/ops are too small for
// them. Views without memory, for planners that only look at sizes.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "quire/quire.h"

namespace quire::test {

struct ServedSize {
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
};
inline constexpr ServedSize kDecode{.batch = 16, .tokens = 16};
inline constexpr ServedSize kPrefill{.batch = 2, .tokens = 4096};

inline TensorView view_of(DType dtype, std::initializer_list<std::int64_t> shape) {
  return TensorView::contiguous(nullptr, dtype, shape);
}

// sides: 2, or 1 for MLA and index keys.
inline PagedKVCache served_cache(ServedSize size, std::int64_t sides, std::int64_t heads,
                                 DType dtype, std::int64_t row) {
  constexpr std::int64_t kPages = 4096;
  PagedKVCache cache{.blocks = view_of(dtype, {kPages, sides, 2, 64, heads, row})};
  cache.cache_lengths = view_of(DType::u32, {size.batch});
  cache.page_table = view_of(DType::u32, {size.batch, 128});
  cache.max_seq_length = static_cast<std::uint32_t>(size.tokens / size.batch);
  return cache;
}
inline PagedKVCache served_latents(ServedSize size, const RowFormat& format) {
  const bool is_bf16 = format.parts[0].dtype == DType::bf16;
  PagedKVCache cache = is_bf16 ? served_cache(size, 1, 1, DType::bf16, format.row_bytes / 2)
                               : served_cache(size, 1, 1, DType::u8, format.row_bytes);
  cache.row_format = format;
  return cache;
}

inline FlashAttentionArgs served_flash_attention(ServedSize size, DType keys, std::int64_t dim) {
  return {.q = view_of(DType::bf16, {size.tokens, 32, dim}),
          .row_offsets = view_of(DType::u32, {size.batch + 1}),
          .cache = served_cache(size, 2, 8, keys, dim),
          .out = view_of(DType::bf16, {size.tokens, 32, dim}),
          .lse = view_of(DType::f32, {size.tokens, 32})};
}
inline FusedQkvArgs served_projection(ServedSize size) {
  return {.x = view_of(DType::bf16, {size.tokens, 4096}),
          .row_offsets = view_of(DType::u32, {size.batch + 1}),
          .weight = {.data = view_of(DType::bf16, {6144, 4096})},
          .cache = served_cache(size, 2, 8, DType::bf16, 128),
          .out = view_of(DType::bf16, {size.tokens, 4096})};
}
inline LinearArgs served_linear(ServedSize size) {
  return {.x = view_of(DType::bf16, {size.tokens, 4096}),
          .weight = {.data = view_of(DType::bf16, {4096, 4096})},
          .out = view_of(DType::bf16, {size.tokens, 4096})};
}
inline MlaDecodeArgs served_mla_decode(ServedSize size, const RowFormat& format) {
  return {.q = view_of(DType::bf16, {size.tokens, 128, 576}),
          .row_offsets = view_of(DType::u32, {size.batch + 1}),
          .cache = served_latents(size, format),
          .scale = 0.1,
          .out = view_of(DType::bf16, {size.tokens, 128, 512}),
          .lse = view_of(DType::f32, {size.tokens, 128})};
}
inline MlaPrefillArgs served_mla_prefill(ServedSize size) {
  return {.q = view_of(DType::bf16, {size.tokens, 128, 192}),
          .row_offsets = view_of(DType::u32, {size.batch + 1}),
          .cache = served_latents(size, RowFormat::uniform(DType::bf16, 576)),
          .kv_b_proj = view_of(DType::bf16, {128 * 256, 512}),
          .scale = 0.1,
          .chunks = {.buffer_row_offsets = view_of(DType::u32, {2, size.batch + 1}),
                     .cache_offsets = view_of(DType::u32, {2, size.batch + 1}),
                     .buffer_lengths = view_of(DType::i32, {2}),
                     .buffer_tokens = 16384},
          .out = view_of(DType::bf16, {size.tokens, 128, 128})};
}
inline MlaIndexerArgs served_indexer(ServedSize size) {
  PagedKVCache cache = served_cache(size, 1, 1, DType::fp8_e4m3, 128);
  cache.scales = view_of(DType::f32, {4096, 1, 2, 64, 1, 1});
  return {.q = view_of(DType::fp8_e4m3, {size.tokens, 64, 128}),
          .q_scale = view_of(DType::f32, {size.tokens, 64}),
          .row_offsets = view_of(DType::u32, {size.batch + 1}),
          .cache = cache,
          .out = view_of(DType::i32, {size.tokens, 2048})};
}
inline SparseMlaArgs served_sparse_mla(ServedSize size, const RowFormat& format) {
  return {.q = view_of(DType::bf16, {size.tokens, 128, 576}),
          .row_offsets = view_of(DType::u32, {size.batch + 1}),
          .cache = served_latents(size, format),
          .indices = view_of(DType::i32, {size.tokens, 2048}),
          .scale = 0.1,
          .out = view_of(DType::bf16, {size.tokens, 128, 512})};
}

}  // namespace quire::test
