// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/paging/operand.h"
#include "cuda/common/runtime/tensor_map.h"
#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/split_schedule.h"
#include "quire/host_device.h"

namespace quire::cuda::sm90::mla_indexer {

struct IndexPages {
  PageTable keys{};
  PageTable scales{};
  int box_rows = 0;  // rows of a page that one copy brings: 16, 32 or 64, and divides page_size
};

struct IndexWeights {
  const float* data = nullptr;  // q_scale [tokens, heads]
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

// Of one token's row. The first `head` codes are those from `bound` on: where a row has many splits, no
// others of it are likely to be among the best.
struct RowPart {
  int count = 0;  // of codes
  int head = 0;
  std::uint32_t least = 0;  // of the head's ranks
  std::uint32_t greatest = 0;
  std::uint64_t bound = 0;
};

// What a CTA leaves of a block of tokens whose keys others have scored too.
struct alignas(16) SplitHeader {
  int first_token = -1;  // row of q; -1: no split
  int first_tile = 0;
  int end_tile = 0;
  int continues = 0;    // 1: the next CTA has the keys that follow
  int scored_rows = 0;  // bit t: token t asks for a selection
  RowPart rows[IndexConfig::kMaxTokens] = {};
};

struct IndexSplits {
  SplitHeader* headers = nullptr;  // [CTAs][2]: the split begun before, the split begun here
  std::uint64_t* codes = nullptr;  // [CTAs][2][block_tokens][kPoolKeys] (rank.cuh)
};

struct IndexParams {
  TensorMap q{};           // (column, head of a group, token, group); boxes of a block of tokens
  TensorMap keys{};        // (column, row of the page, page); boxes of dims × box_rows
  TensorMap key_scales{};  // (row of the page, page); boxes of box_rows
  IndexWeights weights{};
  IndexBatch batch{};
  IndexPages pages{};
  std::int32_t* out = nullptr;  // [tokens, top_k]
  std::int64_t out_stride = 0;
  IndexSplits splits{};
  int parts = 0;  // CTAs that score
};

// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.

template <typename Variant> void launch_index(const IndexParams& params, cudaStream_t stream);

// The rows that no CTA scored alone: those merged from several splits, and those that see no
// more than top_k keys.

// merges: blocks of tokens that may have been cut, at most.
void launch_finish(const IndexParams& params, int merges, cudaStream_t stream);

inline constexpr int kMaxCluster = 16;

// How rows are given to clusters.
struct ClusterShape {
  int size = 0;      // CTAs of a cluster, 1 to 16; 0: rows are not taken whole
  int capacity = 0;  // keys of the longest row, a multiple of a tile's
};

// The border between host code and one compiled kernel that takes whole rows: src/cuda/variants.cmake
// instantiates it.

template <typename Variant>
void launch_index_cluster(const IndexParams& params, const ClusterShape& shape,
                          cudaStream_t stream);

// How rows are given to groups of CTAs.
struct GroupShape {
  int parts = 0;      // CTAs of all groups, which run at once; 0: no groups
  int capacity = 0;   // keys that one may have, a multiple of a tile's
  int max_tiles = 0;  // of a row
};

inline constexpr int kMostGroups = 32;

// What CTAs tell the others of their group. A group's heads stand one after another from the place
// of its first CTA on.
struct GroupBoard {
  static constexpr int kMostHead = 2400;
  static constexpr int kMostCodes = 8192;  // of all heads of a group

  std::uint64_t* heads = nullptr;   // [parts][kMostHead] codes; 0: none
  std::uint64_t* floors = nullptr;  // [parts]: what is not in the head is below it; 0: nothing
  std::uint64_t* tails = nullptr;   // [parts][capacity] codes, a group's from its first one's on
  std::uint32_t* tail_counts = nullptr;  // [parts]: of a group, its first one's
  std::uint32_t* arrivals = nullptr;     // [parts]: at the barrier of a group, its first one's
};

// The border between host code and one compiled kernel whose rows are groups': src/cuda/variants.cmake
// instantiates it.

template <typename Variant>
void launch_index_group(const IndexParams& params, const GroupBoard& board, const GroupShape& shape,
                        cudaStream_t stream);

// How CTAs are cut into groups: one for each row, and of the others as many as befits the row's tiles.
// Where all rows together have t tiles, no CTA gets more than t / spare of them, rounded up.
struct GroupCuts {
  unsigned spare;  // CTAs without one for each row
  unsigned total;  // tiles of all rows, at least 1

  // CTAs before those of a row.
  QUIRE_HOST_DEVICE int begin(unsigned row, unsigned tiles_before) const {
    return static_cast<int>(row + spare * tiles_before / total);
  }
};

// Ranks of a CTA's own keys stand beside the stages.
inline constexpr int kMaxGroupKeys = 18432;
template <int kHeads, int kDims> struct IndexGroup {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 1, .dims = kDims, .stages = kDims == 128 ? 15 : 24};
};

}  // namespace quire::cuda::sm90::mla_indexer
