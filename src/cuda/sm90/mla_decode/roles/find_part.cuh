// SPDX-License-Identifier: Apache-2.0
// A cluster's part of the work, found by its four loading warps: a thread per sequence, so that lengths of
// 128 sequences cost one round trip to memory. (32 at a time, one after another: 3.5 µs more with 128.)
#pragma once

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/common/split_kv/split_schedule.h"
#include "cuda/sm90/mla_decode/cut_parts.h"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

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
  LinePlace place;  // of the cluster's cut, if it has one
};

// `thread`: of the loading warps.
__device__ inline ClusterPart find_part(const MlaDecodeParams& params, LineScanShared& shared,
                                        int cluster, int thread) {
  LineScan scan(params.batch, params.split, shared, thread);
  ClusterPart part{.cuts = cut_parts(params.split, scan.add_up()), .place = {}};
  if (cluster < part.cuts.parts && part.cuts.total > 0) {
    part.place = scan.find(part.cuts.at(cluster));
  }
  return part;
}

// A piece of the work as the warps that multiply see it.

__device__ inline LatentItem describe_item(const DecodeBatch& batch, const SequenceWork& work,
                                           const WorkPiece& piece, int sequence) {
  const int skipped = piece.tile * batch.tile_tokens;
  return {.tiles = piece.end - piece.begin,
          .first_key = (work.first_block + piece.begin) * kBlockKeys,
          .num_keys = work.num_keys,
          .position = first_position(batch, sequence, work) + skipped,
          .first_token = work.first_token + skipped,
          .rows = min(work.tokens - skipped, batch.tile_tokens) * batch.group,
          .slot = piece.slot};
}

// Who begins an item says how many clusters share it: whoever merges then has nothing to look up.

// By one warp of a cluster, for each of its pieces. Invariant pieces follow from the lengths alone. The
// line is added up again: nobody waits for this, and nothing has to be kept until then.
__device__ inline void publish_split_count(const MlaDecodeParams& params, int cluster,
                                           const SequenceWork& work, const WorkPiece& piece,
                                           int sequence) {
  static_assert(DecodeSplit{}.item_cost == 0 && DecodeSplit{}.min_piece == 1);
  if (params.split.is_invariant || piece.begin != 0) return;
  int pieces = 1;
  if (piece.slot >= 0) {
    // Where the item ends on the line: clusters up to the first cut from there on have pieces of it.
    const WorkCuts cuts = cut_parts(params.split, cut_batch(params).total);
    pieces = cuts.first_from(cuts.at(cluster + 1) + work.blocks - piece.end) - cluster;
  }
  if (threadIdx.x % 32 != 0) return;
  params.attend.pieces.notes[sequence * params.split.max_tiles + piece.tile] = {
      .pieces = pieces, .first_cluster = cluster};
}

}  // namespace quire::cuda::sm90::mla_decode
