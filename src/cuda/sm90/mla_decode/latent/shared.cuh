// SPDX-License-Identifier: Apache-2.0
// What the roles of every kernel over latent rows say to each other.
#pragma once

#include <cstddef>

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/common/split_kv/split_schedule.h"
#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

// A split of a work tile: query rows × a run of tiles of keys.
struct LatentWorkTile {
  int tiles;        // 0: there are no more work tiles
  int first_key;    // of tile 0
  int num_keys;     // of the sequence
  int position;     // of the first row's token
  int first_token;  // row of q of the first row
  int rows;         // in use
  long long slot;   // of the workspace; -1: the split is the whole work tile
};

// Where 16-byte chunk `chunk` of a row stands in a tile of 128-byte rows, and of 64-byte rows.
__device__ inline int swizzle_column_offset(int row, int chunk) {
  return row * kRowBytes + ((chunk ^ row) % 8) * 16;
}
__device__ inline int tail_offset(int row, int chunk) {
  return row * (kRowBytes / 2) + ((chunk ^ (row / 2)) % 4) * 16;
}

// Queries of a work tile on their way into shared memory.

// 16 bytes of a query; zeros, where `is_there` is false. The compiler must not see what the address is
// made of: as a sum of a register, a uniform register and a constant, ptxas 13.0 encodes this copy with
// a descriptor register that does not exist, and the GPU stops at an illegal instruction.
__device__ inline void copy_query(void* target, const std::byte* source, bool is_there) {
  auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("" : "+r"(address));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 16 : 0)
               : "memory");
}

// One row of a work tile's queries into L2, ahead of those who load it.
__device__ inline void prefetch_query(const LatentParams& params, const LatentWorkTile& work_tile,
                                      int row) {
  constexpr int kBytes = (LatentConfig::kLatent + LatentConfig::kRope) * 2;
  if (row >= work_tile.rows) return;
  const std::byte* source =
      params.queries.data +
      (work_tile.first_token + row / params.heads) * params.queries.token_stride_bytes +
      row % params.heads * params.queries.head_stride_bytes;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "n"(kBytes) : "memory");
}

// Descriptors of what products of latent rows read.

inline constexpr int kTileScores = LatentConfig::kKeys / 2;  // of a thread

// The address field of a descriptor. Addresses in a cluster carry the block's rank above the 18 bits
// that are the instruction's; there they would change the field beside it.
__device__ inline std::uint32_t address_field(const void* tile) {
  return (static_cast<std::uint32_t>(__cvta_generic_to_shared(tile)) & 0x3ffff) >> 4;
}

// The halves of descriptors (common/mma/wgmma.cuh): where a tile stands, and how its rows lie. Steps along a
// tile change the first and never carry into the second; kept apart they are one addition each, in
// uniform registers where `low` was broadcast.
inline constexpr std::uint32_t kRowsHigh = 1U << 30 | 1024 >> 4;  // 128-byte rows, swizzle b128

__device__ inline std::uint32_t descriptor_low(const void* tile) {
  return address_field(tile) | 1U << 16;
}
__device__ inline std::uint64_t descriptor(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{high} << 32 | low;
}
__device__ inline std::uint32_t broadcast(std::uint32_t value) {
  return __shfl_sync(0xffffffff, value, 0);
}

// Which keys the rows of a work tile see.

class LatentRowMask {
 public:
  // `rows`: that a work tile may have.
  __device__ LatentRowMask(const LatentParams& params, const LatentWorkTile& work_tile, int rows)
      : params_(params), work_tile_(work_tile) {
    const int last = work_tile.position + (min(work_tile.rows, rows) - 1) / params.heads;
    all_see_ = {.first = params.visible.of(last, work_tile.num_keys).first,
                .end = params.visible.of(work_tile.position, work_tile.num_keys).end};
  }

  // Keys of a tile that are the sequence's.
  __device__ int num_keys(int tile) const {
    return work_tile_.num_keys - work_tile_.first_key - tile * LatentConfig::kKeys;
  }

  // The work tile's tiles in which every row sees every key (those below 0 are not asked for).
  __device__ KeyInterval whole_tiles() const {
    constexpr int kKeys = LatentConfig::kKeys;
    return {.first = (all_see_.first - work_tile_.first_key + kKeys - 1) / kKeys,
            .end = (all_see_.end - work_tile_.first_key) / kKeys};
  }

  // Selects, never adds: what stands behind a sequence's end may be anything. `row`: the thread's
  // first; the second stands 8 below it.
  __device__ void hide(int tile, std::uint64_t valid, int row, float (&scores)[kTileScores]) const {
    if (is_whole(tile, valid)) return;
    const int first_key = first_key_of(tile);
    const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int position = work_tile_.position + (row + 8 * i) / params_.heads;
      const KeyInterval seen = params_.visible.of(position, work_tile_.num_keys);
#pragma unroll
      for (int j = 2 * i; j < kTileScores; j += 4) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = 8 * (j / 4) + column + e;
          const int key = first_key + at;
          const bool is_seen = (valid >> at & 1) != 0 && key >= seen.first && key < seen.end;
          if (!is_seen) scores[j + e] = -INFINITY;
        }
      }
    }
  }

  // The same for keys × rows. `key`: of the tile, the thread's first; the second stands 8 below it. Rows
  // are 8j + 2 (lane % 4) + e.
  template <int kScores>
  __device__ void hide_across(int tile, std::uint64_t valid, int key,
                              float (&scores)[kScores]) const {
    if (is_whole(tile, valid)) return;
    const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int row = 8 * (j / 4) + column + j % 2;
      const KeyInterval seen =
          params_.visible.of(work_tile_.position + row / params_.heads, work_tile_.num_keys);
      const int at = key + j / 2 % 2 * 8;
      const int position = first_key_of(tile) + at;
      const bool is_seen = (valid >> at & 1) != 0 && position >= seen.first && position < seen.end;
      if (!is_seen) scores[j] = -INFINITY;
    }
  }

 private:
  __device__ int first_key_of(int tile) const {
    return work_tile_.first_key + tile * LatentConfig::kKeys;
  }
  // Every row sees every key.
  __device__ bool is_whole(int tile, std::uint64_t valid) const {
    const int first_key = first_key_of(tile);
    return valid == ~std::uint64_t{0} && first_key >= all_see_.first &&
           first_key + LatentConfig::kKeys <= all_see_.end;
  }

  const LatentParams& params_;
  const LatentWorkTile& work_tile_;
  KeyInterval all_see_;
};

// What a thread knows of its two rows when their keys are done: rows 8 apart, the same in all threads
// of a quad.

// Maxima in powers of two, -inf where a row saw no key.
struct RowStats {
  float max[2];
  float sum[2];
};

// A cluster's part of the work, found by its four loading warps: a thread per sequence, so that lengths of
// 128 sequences cost one round trip to memory. (32 at a time, one after another: 3.5 µs more with 128.)

// The page table into L2, all of it or what one line for each thread brings, while lengths are on
// their way: which of it a block needs follows from them. `thread`: of 128.
__device__ inline void prefetch_table(const PageTable& pages, int batch, int thread) {
  constexpr int kLine = 32;  // entries
  PageCursor::prefetch(pages, batch,
                       (std::int64_t{blockIdx.x} * DecodeConfig::kLoadThreads + thread) * kLine);
}

// By a block's first threads, before all else: what find_part and the first lookups read is on its way while
// barriers are made. (A block of few rows would spill for it, and was no faster.)
__device__ inline void fetch_part(const MlaDecodeParams& params) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= DecodeConfig::kLoadThreads) return;
  constexpr int kLine = 32;  // numbers
  const DecodeBatch& batch = params.batch;
  for (int i = thread * kLine; i <= batch.size; i += DecodeConfig::kLoadThreads * kLine) {
    prefetch_line(batch.row_offsets + i);
    if (i < batch.size) prefetch_line(batch.cache_lengths + i);
  }
  prefetch_table(params.pages.kv.pages, batch.size, thread);
}

struct ClusterPart {
  WorkCuts cuts;
  WorkPlace place;  // of the cluster's cut, if it has one
};

// `thread`: of the loading warps.
__device__ inline ClusterPart find_part(const MlaDecodeParams& params, WorkScanShared& shared,
                                        int cluster, int thread) {
  WorkScan scan(params.batch, params.schedule, shared, thread);
  ClusterPart part{.cuts = cut_parts(params.schedule, scan.add_up()), .place = {}};
  if (cluster < part.cuts.parts && part.cuts.total > 0) {
    part.place = scan.find(part.cuts.at(cluster));
  }
  return part;
}

// A split of the work as the warps that multiply see it.

__device__ inline LatentWorkTile describe_work_tile(const DecodeBatch& batch,
                                                    const SequenceWork& work,
                                                    const WorkSplit& split, int sequence) {
  const int skipped = split.tile * batch.tile_tokens;
  return {.tiles = split.end - split.begin,
          .first_key = (work.first_block + split.begin) * kBlockKeys,
          .num_keys = work.num_keys,
          .position = first_position(batch, sequence, work) + skipped,
          .first_token = work.first_token + skipped,
          .rows = min(work.tokens - skipped, batch.tile_tokens) * batch.group,
          .slot = split.slot};
}

// Who begins a work tile says how many clusters share it: whoever merges then has nothing to look up.

// By one warp of a cluster, for each of its splits. Invariant splits follow from the lengths alone. The
// work list is added up again: nobody waits for this, and nothing has to be kept until then.
__device__ inline void publish_split_count(const MlaDecodeParams& params, int cluster,
                                           const SequenceWork& work, const WorkSplit& split,
                                           int sequence) {
  static_assert(SplitSchedule{}.work_tile_cost == 0 && SplitSchedule{}.min_split == 1);
  if (params.schedule.is_invariant || split.begin != 0) return;
  int splits = 1;
  if (split.slot >= 0) {
    // Where the work tile ends on the work list: clusters up to the first cut from there on have splits of it.
    const WorkCuts cuts = cut_parts(params.schedule, cut_batch(params).total);
    splits = cuts.first_from(cuts.at(cluster + 1) + work.blocks - split.end) - cluster;
  }
  if (threadIdx.x % 32 != 0) return;
  params.attend.splits.split_counts[sequence * params.schedule.max_tiles + split.tile] = {
      .splits = splits, .first_cluster = cluster};
}

}  // namespace quire::cuda::sm90::mla_decode
