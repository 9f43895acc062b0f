// SPDX-License-Identifier: Apache-2.0
// What the attention kernels of mla_decode receive: plain values, made on the host.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/mask/visible_range.h"
#include "cuda/common/paging/operand.h"
#include "cuda/common/runtime/tensor_map.h"
#include "cuda/common/softmax/attend_output.h"
#include "cuda/common/split_kv/split_schedule.h"
#include "quire/dtype.h"

namespace quire::cuda::sm90::mla_decode {

// What the consumers receive: plain values, made on the host.

struct LatentQueries {
  const std::byte* data = nullptr;  // [tokens, heads, 576] bf16, rows on multiples of 16 bytes
  std::int64_t token_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;
};

// Of a work tile: how many splits it has, and whose the first is.
struct SplitCount {
  int splits;
  int first_cluster;
};

// Splits of work tiles that several clusters share: sums relative to exp2(max), not divided.
struct LatentSplits {
  float* sums = nullptr;    // [slots, rows, 512]
  float2* stats = nullptr;  // [slots, rows] (max in powers of two, sum of weights)
  int rows = 0;
  SplitCount* split_counts = nullptr;  // [work tiles], or null
};

struct LatentParams {
  LatentQueries queries{};
  int heads = 0;         // row r of a work tile: head r % heads of its token r / heads
  float to_log2 = 0.0F;  // scale · log2(e), positive
  VisibleRange visible{};
  AttendOutput outputs{};  // bf16 [tokens, heads, 512], rows on multiples of 16 bytes
  LatentSplits splits{};
};

struct LatentPages {
  PagedOperand kv{};  // of one head, on multiples of 16 bytes; pages of a multiple of 16 rows
  // Rows of a page that one TMA copy brings, and what power of two they are: 16 to 64
  int box_rows = 0;
  int box_bits = 0;
};

// Rows of e4m3: 512 latent columns from byte 0 on.
struct LatentRowFormat {
  int rope_offset_bytes = 0;
  bool has_fp8_rope = false;         // otherwise bf16
  int row_scales_offset_bytes = -1;  // f32 [4], one for 128 latent columns; -1: none
  // f32, one for a row, in the scales' own pages; null: none
  const float* token_scales = nullptr;
  std::int64_t scale_page_stride = 0;  // elements
  std::int64_t scale_token_stride = 0;
  PageTable scale_pages{};
};

struct MlaDecodeParams {
  LatentParams attend{};
  DecodeBatch batch{};       // of one KV head
  SplitSchedule schedule{};  // into clusters
  LatentPages pages{};
  LatentRowFormat format{};  // of rows to be converted
  // bf16 rows: (column of the swizzle column, row of the page, swizzle column, page), two swizzle columns at a time in `latents`, where a
  // box has a tile's 64 rows, and one in `tails`. For few query rows, and for rows of e4m3: whole rows × 16 in `latents`,
  // but in swizzle columns rope columns of e4m3 in `tails`.
  TensorMap latents{};
  TensorMap tails{};
  // For rows of e4m3 that are multiplied as codes, box_rows at a time: swizzle columns of 128 latents in `latents`, all of
  // them where a box has a tile's 64 rows; rope columns in `tails`; scales that stand in the rows here.
  TensorMap scales{};
};

// Attention over latent rows (512 latent columns that are keys and values, 64 rope columns that are keys only): sizes
// that its kernels share.

struct LatentConfig {
  static constexpr int kKeys = 64;  // of a tile
  static constexpr int kLatent = 512;
  static constexpr int kRope = 64;
  static constexpr int kSwizzleColumnWidth = 64;  // 128 bytes of 16-bit numbers: a swizzled row
  static constexpr int kGroupRows = 64;           // of q, that a warpgroup multiplies
  static constexpr int kFewRows = 16;             // of q, that swap_ab/ takes
  // Of a tile, that a loading warp brings: pages have a multiple.
  static constexpr int kWarpKeys = 16;
};

// The border between host code and one compiled kernel of a family: src/cuda/variants.cmake instantiates it.

template <typename Variant>
void launch_pingpong(const MlaDecodeParams& params, cudaStream_t stream);
template <typename Variant> void launch_swap_ab(const MlaDecodeParams& params, cudaStream_t stream);
template <typename Variant>
void launch_fp8_wgmma(const MlaDecodeParams& params, cudaStream_t stream);
template <typename Variant>
void launch_fp8_pingpong(const MlaDecodeParams& params, cudaStream_t stream);

// Where the work of mla_decode is cut (common/split_kv/split_schedule.h).

// A cluster has two tiles or more, if there are so many: a second tile takes it less time than another split takes to
// be stored and merged (one sequence of 8 192 keys: 18.1 µs with 64 splits of 16 heads, 18.8 with 128).
QUIRE_HOST_DEVICE inline WorkCuts cut_parts(const SplitSchedule& schedule, int tiles) {
  const int pairs = tiles / 2;
  SplitSchedule fewer = schedule;
  if (pairs < schedule.blocks) fewer.blocks = pairs > 1 ? pairs : 1;
  return cut_work(fewer, tiles);
}

// What the walk over a part (common/split_kv/split_schedule.h) gives first, from the cuts alone: keys and queries are asked for before the walk
// begins. Code that runs once is mostly waited for, and that of a walk jumps. False: there is nothing, or splits are
// invariant and begin elsewhere than at cuts.
QUIRE_HOST_DEVICE inline bool first_split(const SplitSchedule& schedule, const WorkCuts& cuts,
                                          const WorkPlace& place, int cluster, WorkSplit& split) {
  static_assert(SplitSchedule{}.work_tile_cost == 0 && SplitSchedule{}.min_split == 1);
  if (schedule.is_invariant || cluster >= cuts.parts || cuts.total == 0) return false;
  const int blocks = place.work.blocks;
  const int position = cuts.at(cluster);
  const int work_tile = (position - place.begin) / blocks;
  const int begin = position - place.begin - work_tile * blocks;
  const int cut = begin + cuts.at(cluster + 1) - position;
  const int end = cut < blocks ? cut : blocks;
  const bool is_whole = begin == 0 && end == blocks;
  split = {.begin = begin,
           .end = end,
           .kv_head = 0,
           .tile = work_tile,
           .slot = is_whole ? -1 : split_slot(cluster, begin == 0)};
  return true;
}

}  // namespace quire::cuda::sm90::mla_decode
