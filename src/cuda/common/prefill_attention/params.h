// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/mask/visible_range.h"
#include "cuda/common/paging/operand.h"
#include "cuda/common/runtime/tensor_map.h"
#include "cuda/common/softmax/attend_output.h"
#include "cuda/common/softmax/score.h"

namespace quire::cuda {

// Positions of the keys that there are, where they are not all from 0 to the last new token: a
// chunk of a context.
struct KeySpans {
  const std::uint32_t* first = nullptr;  // [batch]; null: 0
  const std::uint32_t* end = nullptr;    // [batch]; null: cache length + new tokens
};

// Where PagedSource (sm90/flash_attention/prefill/kernel.cuh) finds K and V.
struct PagedKeys {
  TensorMap keys{};    // (column, row of the page, KV head, page); boxes of 64 × box_rows
  TensorMap values{};  // the same
  PageTable pages{};
  int box_rows = 0;  // rows of a page that one copy brings: a power of two that divides page_size
};

// Rows whose keys come in chunks, a launch for each: what one leaves to the next.
struct ChainedRows {
  float* sums = nullptr;  // [tokens, heads, value_dim], not divided
  float* rows = nullptr;  // [tokens, heads, 2]: maximum in log2 units, sum of weights
  // On the device, as lengths are: whether the launch goes on from what is kept there, and whether
  // it finishes the rows, which are kept else.
  const std::uint32_t* links = nullptr;

  static constexpr std::uint32_t kContinues = 1;
  static constexpr std::uint32_t kFinishes = 2;
};

// Tiles that are cut along their keys (tail_cuts.h): what their splits leave to the last of them.
struct TailSplits {
  // [2 · CTAs, consumers, value_dim / 8, threads, 4]; null: none is cut
  float* sums = nullptr;
  float4* rows = nullptr;   // [2 · CTAs, consumers, threads]: maxima in log2 units, sums
  int* arrivals = nullptr;  // [2 · CTAs, consumers], zero at the start
  int slowness = 0;         // of the slowest multiprocessors, in thousandths
};

struct PrefillParams {
  TensorMap q{};  // (column, head, token); boxes of 64 columns of a q part's rows
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch], positions of the first new tokens
  KeySpans spans{};
  int batch = 0;
  int passed_tokens = 0;  // sequences of at most so many new tokens are somebody else's
  // Heads that stand side by side in a tile's rows, a power of two that divides those of a KV head:
  // row r is head r % tile_heads of token r / tile_heads.
  int tile_heads_log2 = 0;
  int head_tiles = 0;     // heads / tile_heads
  int kv_head_tiles = 0;  // of them, on one KV head
  int section_keys = 0;   // keys of one KV head beyond which heads take turns (schedule.cuh)
  VisibleRange mask{};
  TokenIntervals intervals{};  // Scores::modified only
  ScoreRules scores{};
  HeadScales scales{};       // where products read e4m3 as it is stored, or as f16
  AttendOutput outputs{};    // rows on multiples of 16 bytes; sinks stand in `scores`
  int* next_tile = nullptr;  // zero at the start
  ChainedRows chain{};       // Ends::chained only
  TailSplits tail{};         // Ends::finished only; not for more than 32 sequences
};

// How a prefill kernel is launched, whatever its keys come from.

struct PrefillLaunch {
  int blocks = 0;
  cudaStream_t stream = nullptr;
};

}  // namespace quire::cuda
