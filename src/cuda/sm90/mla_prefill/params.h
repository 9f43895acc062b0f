// SPDX-License-Identifier: Apache-2.0
// What the branch's own kernels receive.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/any/mla_prefill/params.h"
#include "cuda/common/matmul/params.h"
#include "cuda/common/matmul/variants.h"
#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/paging/operand.h"
#include "cuda/common/prefill_attention/config.h"
#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/runtime/tensor_map.h"

namespace quire::cuda::sm90::mla_prefill {

// What the plan says of each chunk, as the attention reads it.
struct ChunkSpans {
  std::uint32_t* first = nullptr;        // [max_chunks, batch], positions
  std::uint32_t* end = nullptr;          // [max_chunks, batch]
  std::uint32_t* buffer_rows = nullptr;  // [max_chunks, batch], of the first
  std::uint32_t* links = nullptr;        // [max_chunks], as ChainedRows has them
  int* next_tiles = nullptr;             // [groups, max_chunks], where tile counters start
  std::uint32_t* zeros = nullptr;        // [2]
};

struct SpanParams {
  any::mla_prefill::ChunkTable chunks;
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  std::int64_t batch = 0;
  std::int64_t groups = 0;  // of heads
  ChunkSpans spans;
};

// Rows of one chunk out of the pages: latents as the up-projection multiplies them, rope columns as
// the attention does. The first launch of a call writes the spans too.
struct GatherRowsParams {
  RowReader cache;
  const std::uint32_t* row_offsets = nullptr;
  any::mla_prefill::ChunkTable chunks;
  std::int64_t chunk = 0;
  std::int64_t rows = 0;         // of the buffer
  std::int32_t latent = 0;       // a multiple of 16
  std::int32_t rope = 0;         // a multiple of 8
  DType dtype = DType::bf16;     // q's
  std::byte* latents = nullptr;  // [rows, latent], of q's dtype or, with scales, e4m3
  float* scales = nullptr;       // [rows, scale_stride], one per 128 latents, or null
  std::int64_t scale_stride = 0;
  std::byte* rope_rows = nullptr;  // [rows, rope]
  DType rope_dtype = DType::bf16;  // q's, or e4m3
  SpanParams spans;                // none without a batch
  bool follows_kernel = true;      // of this call, whose end it waits for itself
};

void launch_gather_rows(const GatherRowsParams& params, cudaStream_t stream);

// Where projected_source.cuh finds the K and V of a chunk: rows of the gathered buffer, not pages.

struct ProjectedKeys {
  TensorMap projected{};  // (column of K | V, head of the group, buffer row); boxes of 64 × 1 × 128
  TensorMap rope{};       // (column, 0, buffer row), for all heads; the same boxes
  const std::uint32_t* buffer_rows = nullptr;  // [batch]: of the chunk's first key
  // The pages that the rows came from: keys on pages that are not there are hidden.
  PageTable pages{};  // of a multiple of 8 rows
};

// Rope columns of q that a kernel rotates on the side, in place: of tokens first_token … tokens - 1.
struct QueryRotation {
  std::byte* q = nullptr;  // [tokens, heads, 64], the first rope column; null: nothing to rotate
  std::int64_t token_bytes = 0;
  std::int64_t head_bytes = 0;
  int first_token = 0;
  int tokens = 0;
  int heads = 0;
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  std::int64_t batch = 0;
  LatentAngles angles;
};

// As gather_rows, for caches whose rows are plain numbers of q's dtype: new ones are finished too.

// A lane holds its part of a row.
inline constexpr std::int32_t kMostPlainLatents = 512;

struct GatherPlainParams {
  GatherRowsParams gather;
  LatentRowFinish new_rows{};     // what is to be done to rows of new tokens
  const std::byte* kv = nullptr;  // [tokens, width], those rows, raw; null: in the cache
  std::int64_t kv_token_bytes = 0;
  QueryRotation rotation{};  // done by CTAs of their own
  int rotating_blocks = 0;
};

void launch_gather_plain(const GatherPlainParams& params, cudaStream_t stream);

// Projected K and V rounded to e4m3, for the attention with products of it, where the projection has
// not done so itself.

struct Fp8RowsParams {
  const std::byte* projected = nullptr;     // bf16 [rows, heads, K | V]
  const std::int32_t* live_rows = nullptr;  // on the device: the rest is left as it is
  int rows = 0;
  int heads = 0;
  std::byte* codes = nullptr;  // [heads, rows, K | V]
};

void launch_fp8_rows(const Fp8RowsParams& params, cudaStream_t stream);

// The compiled kernels of the branch: attention over projected keys, and up-projections.

// The attention kernels of the branch are those of flash_attention for heads of 192 and 128, but for
// their ends: a chunk's rows go on where the chunk before left them.

constexpr PrefillConfig chained(PrefillConfig config) {
  config.ends = Ends::chained;
  return config;
}

// The compiled attention kernels of the branch: one file in variants/ for each way of scoring.

template <DType kDType, Scores kScores> struct ProjectedAttention {
  static constexpr PrefillConfig kConfig = chained(PrefillD192V128<kDType, kScores>::kConfig);
};

template <typename Variant>
void launch_projected(const PrefillParams& params, const ProjectedKeys& keys,
                      const PrefillLaunch& launch);

// The compiled up-projections (src/cuda/variants.cmake). A tile's 256 columns are one head's K
// and V.

using ProjectBf16 = TileN256<DType::bf16>;
using ProjectF16 = TileN256<DType::f16>;
using ProjectFp8 = TileN256<DType::fp8_e4m3, Scaling::blocks>;

// live_rows: on the device; without any the kernel ends at once.
template <typename Variant>
void launch_projection(const TileParams& params, const std::int32_t* live_rows,
                       const TileLaunch& launch);

// The compiled attention kernels with products of e4m3: one file in variants/ for each.

template <DType kDType> struct Fp8Attention {
  static constexpr PrefillConfig kConfig = chained(Fp8D192V128<kDType, Scores::scaled>::kConfig);
};

template <typename Variant>
void launch_fp8_attention(const PrefillParams& params, const ProjectedKeys& keys,
                          const PrefillLaunch& launch);

}  // namespace quire::cuda::sm90::mla_prefill
