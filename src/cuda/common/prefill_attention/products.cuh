// SPDX-License-Identifier: Apache-2.0
// The two products of a warpgroup's 64 rows with a block of keys. Asynchronous: between a fence and
// a commit.
#pragma once

#include "cuda/common/prefill_attention/shared.cuh"

namespace quire::cuda {

// scores = q · Kᵀ. q: the warpgroup's first row.
template <PrefillConfig kConfig>
__device__ inline void issue_scores(const std::byte* q, const std::byte* keys,
                                    float (&scores)[kConfig.block_keys / 2]) {
  using Op = Wgmma<kConfig.score_dtype(), kConfig.block_keys>;
  using Shared = PrefillShared<kConfig>;
  constexpr int kFullSwizzleColumns = kConfig.head_dim / kConfig.key_swizzle_column_width();
  // A swizzle column is a row of kRowBytes.
  constexpr int kLastSteps = kConfig.head_dim % kConfig.key_swizzle_column_width() * kRowBytes /
                             kConfig.key_swizzle_column_width() / kStepBytes;
  const std::uint64_t a = tile_descriptor(q);
  const std::uint64_t b = tile_descriptor(keys);
#pragma unroll
  for (int swizzle_column = 0; swizzle_column < kFullSwizzleColumns; ++swizzle_column) {
    multiply_rows<Op>(a + swizzle_column * (Shared::kQuerySwizzleColumnBytes >> 4),
                      b + swizzle_column * (Shared::kSwizzleColumnBytes >> 4), scores,
                      swizzle_column == 0);
  }
  if constexpr (kConfig.products ==
                Products::mixed) {  // what q's first half left (split_queries.cuh)
    multiply_rows<Op>(a + (Shared::kQuerySwizzleColumnBytes >> 4), b, scores, false);
  }
  if constexpr (kLastSteps > 0) {
    multiply_rows<Op, kLastSteps>(a + kFullSwizzleColumns * (Shared::kQuerySwizzleColumnBytes >> 4),
                                  b + kFullSwizzleColumns * (Shared::kSwizzleColumnBytes >> 4),
                                  scores, kFullSwizzleColumns == 0);
  }
}

// sums (+)= weights · V.
template <PrefillConfig kConfig>
__device__ inline void issue_values(const std::uint32_t (&weights)[kConfig.block_keys / 4],
                                    const std::byte* values, float (&sums)[kConfig.value_dim / 2],
                                    bool starts_sum) {
  using Op = RegisterWgmma<kConfig.product_dtype(), kConfig.value_dim>;
  multiply_registers<Op>(weights,
                         transposed_descriptor(values, PrefillShared<kConfig>::kSwizzleColumnBytes),
                         sums, starts_sum);
}

}  // namespace quire::cuda
