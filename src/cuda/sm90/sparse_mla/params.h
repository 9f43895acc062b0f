// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/paging/operand.h"
#include "cuda/common/runtime/tensor_map.h"
#include "cuda/common/softmax/attend_output.h"
#include "cuda/sm90/sparse_mla/config.h"
#include "quire/kv_layer_view.h"

namespace quire::cuda::sm90::sparse_mla {

// A cache and the positions to take from it.
struct GatherStream {
  KvLayerView rows;
  PageTable pages{};
  PageTable scale_pages{};
  const std::int32_t* indices = nullptr;  // [tokens, slots]
  std::int64_t indices_stride = 0;
  int slots = 0;
  const std::int32_t* lengths = nullptr;  // [tokens], null: all slots
  int rope_offset_bytes = 0;              // fp8 rows
  bool rope_is_fp8 = false;
  bool rope_is_scaled = false;
  bool powers_are_words = false;  // a row's e8m0 scales are the bytes of an aligned word of eight
  std::uint32_t tokens_per_row = 1;  // lengths of sequences count tokens
};

// A work tile is a token's heads, 64 at a time, over all of its tiles of keys. The last ones, which would
// leave multiprocessors idle, are cut: each of their work tiles has one split of the tiles. Tiles of the
// second stream follow those of the first.
struct SparseWork {
  int tokens = 0;
  int heads = 0;
  int head_tiles = 1;
  int tiles = 1;           // of keys
  int whole = 0;           // work tiles that are not cut, the first ones
  int splits = 1;          // of the tiles, for each of the others
  int split_tiles = 1;     // of each
  int first_tiles = 0;     // of the first stream
  bool alternates = true;  // a block goes through every second work tile's slots backwards

  __host__ __device__ int cut() const { return tokens * head_tiles - whole; }
  __host__ __device__ int work_tiles() const { return whole + cut() * splits; }
};

// Of a token's tiles: a warp of the merge has one in each lane.
inline constexpr int kMostSparseSplits = 32;

// Splits that are to be merged: sums not divided yet, and their rows' (maximum · log2 e, sum).
struct SparseSplits {
  float* sums = nullptr;    // [cut, splits, 64, 512]
  float2* stats = nullptr;  // [cut, splits, 64]
};

struct SparseParams {
  TensorMap q;  // [tokens, heads, 576 or 512] bf16, boxes of 64 columns × 64 heads
  const std::byte* q_rows = nullptr;  // the same without boxes
  std::int64_t q_token_bytes = 0;
  std::int64_t q_head_bytes = 0;
  SparseWork work;
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  GatherStream streams[2];                     // the chosen rows, then the extra ones
  float scale_log2 = 1.0F;
  AttendOutput output;
  SparseSplits splits;
};

// One definition for each variant, in its own file.
template <typename Variant>
void launch_sparse_tiles(const SparseParams& params, int blocks, cudaStream_t stream);

// The splits of a token's tiles become rows of the output, in their order. Nothing without splits.
void merge_sparse_splits(const SparseParams& params, cudaStream_t stream);

// One definition for each variant, in its own file.
template <typename Variant>
void launch_sparse_fp8(const SparseParams& params, int blocks, cudaStream_t stream);

}  // namespace quire::cuda::sm90::sparse_mla
