// SPDX-License-Identifier: Apache-2.0
// A block per token: scores of its keys into the block's own row of scratch, then the selection.
#include <cstdint>

#include "cuda/any/mla_indexer/params.h"
#include "cuda/common/paging/row_reader.cuh"
#include "cuda/common/rows/rank.cuh"
#include "cuda/common/rows/select_ranks.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::mla_indexer {

// The scores of one token for all keys that it may see, 64 keys × 64 heads at a time, as ranks:
// unsigned numbers in the order of the scores.

inline constexpr int kIndexerThreads = kSelectThreads;
inline constexpr int kIndexerTile = 64;   // keys, and heads
inline constexpr int kIndexerChunk = 64;  // columns of a step
inline constexpr int kIndexerGroups = 16;
inline constexpr int kIndexerSums = kIndexerTile / kIndexerGroups;

struct ScoreShared {
  float keys[kIndexerTile][kIndexerChunk + 4];
  float queries[kIndexerTile][kIndexerChunk + 4];
  float parts[kIndexerGroups][kIndexerTile];  // of the sum over heads
  RowPlace places[kIndexerTile];
};

struct IndexedToken {
  std::int64_t token;
  int sequence;
};

// Dot products of 64 heads from first_head on with the 64 keys of the tile.
__device__ inline void multiply_heads(const IndexerParams& params, const IndexedToken& at,
                                      int first_head, ScoreShared& shared,
                                      float (&sums)[kIndexerSums][kIndexerSums]) {
  constexpr int kRuns = kIndexerChunk / kVec8;
  const int key_group = static_cast<int>(threadIdx.x) % kIndexerGroups;
  const int head_group = static_cast<int>(threadIdx.x) / kIndexerGroups;
  const PlainRows keys{
      .dtype = DType::fp8_e4m3, .width = params.q.width, .reads_vec8 = params.keys.reads_vec8};
  const int key_offset = params.keys.view.row_format.parts[0].offset_bytes;
  for (int column = 0; column < params.q.width; column += kIndexerChunk) {
    __syncthreads();
    for (int i = threadIdx.x; i < kIndexerTile * kRuns; i += kIndexerThreads) {
      const int row = i / kRuns;
      const int run = i % kRuns * kVec8;
      const RowPlace place = shared.places[row];
      float values[kVec8];
      load_columns(keys, place.exists() ? place.row + key_offset : nullptr, column + run, values);
      reinterpret_cast<float4*>(&shared.keys[row][run])[0] = {values[0], values[1], values[2],
                                                              values[3]};
      reinterpret_cast<float4*>(&shared.keys[row][run])[1] = {values[4], values[5], values[6],
                                                              values[7]};
      const int head = first_head + row;
      const std::byte* q = params.q.data + at.token * params.q.token_bytes +
                           std::int64_t{head} * params.q.head_bytes;
      load_columns(params.q, head < params.heads ? q : nullptr, column + run, values);
      reinterpret_cast<float4*>(&shared.queries[row][run])[0] = {values[0], values[1], values[2],
                                                                 values[3]};
      reinterpret_cast<float4*>(&shared.queries[row][run])[1] = {values[4], values[5], values[6],
                                                                 values[7]};
    }
    __syncthreads();
#pragma unroll 4
    for (int c = 0; c < kIndexerChunk; c += 4) {
      float4 q[kIndexerSums];
#pragma unroll
      for (int i = 0; i < kIndexerSums; ++i) {
        q[i] =
            *reinterpret_cast<const float4*>(&shared.queries[head_group + i * kIndexerGroups][c]);
      }
#pragma unroll
      for (int j = 0; j < kIndexerSums; ++j) {
        const float4 k =
            *reinterpret_cast<const float4*>(&shared.keys[key_group + j * kIndexerGroups][c]);
#pragma unroll
        for (int i = 0; i < kIndexerSums; ++i) {
          sums[i][j] = fmaf(q[i].w, k.w,
                            fmaf(q[i].z, k.z, fmaf(q[i].y, k.y, fmaf(q[i].x, k.x, sums[i][j]))));
        }
      }
    }
  }
}

// Σ over this thread's heads of max(0, dot) · q_scale, for each of its keys.
__device__ inline void weigh_heads(const IndexerParams& params, const IndexedToken& at,
                                   int first_head, const float (&sums)[kIndexerSums][kIndexerSums],
                                   float (&weighted)[kIndexerSums]) {
  const int head_group = static_cast<int>(threadIdx.x) / kIndexerGroups;
#pragma unroll
  for (int i = 0; i < kIndexerSums; ++i) {
    const int head = first_head + head_group + i * kIndexerGroups;
    if (head >= params.heads) continue;
    const float scale =
        params.q_scale[at.token * params.q_scale_token_stride + head * params.q_scale_head_stride];
#pragma unroll
    for (int j = 0; j < kIndexerSums; ++j) {
      const float positive = sums[i][j] < 0.0f ? 0.0f : sums[i][j];  // NaN stays
      weighted[j] = fmaf(positive, scale, weighted[j]);
    }
  }
}

// The scores of 64 keys: of the i-th, position(i) or none if that is negative, thread i hands the score to
// take(i, place, score).
template <typename Position, typename Take>
__device__ inline void score_tile(const IndexerParams& params, const IndexedToken& at,
                                  const Position& position, ScoreShared& shared, const Take& take) {
  const KvLayerView& view = params.keys.view;
  __syncthreads();
  if (threadIdx.x < kIndexerTile) {
    const std::int64_t key = position(static_cast<int>(threadIdx.x));
    shared.places[threadIdx.x] = key >= 0 ? place_row(view, at.sequence, key, 0) : RowPlace{};
  }
  float weighted[kIndexerSums] = {};
  for (int head = 0; head < params.heads; head += kIndexerTile) {
    float sums[kIndexerSums][kIndexerSums] = {};
    multiply_heads(params, at, head, shared, sums);
    weigh_heads(params, at, head, sums, weighted);
  }
#pragma unroll
  for (int j = 0; j < kIndexerSums; ++j) {
    shared.parts[threadIdx.x / kIndexerGroups][threadIdx.x % kIndexerGroups + j * kIndexerGroups] =
        weighted[j];
  }
  __syncthreads();
  if (threadIdx.x >= kIndexerTile) return;
  const RowPlace place = shared.places[threadIdx.x];
  float sum = 0.0f;
  for (int group = 0; group < kIndexerGroups; ++group) sum += shared.parts[group][threadIdx.x];
  const float scale = place.exists() ? scale_of(view, view.row_format.parts[0], place, 0, 0) : 0.0f;
  take(static_cast<int>(threadIdx.x), place, sum * scale);
}

// Ranks of the keys [first, first + 64) below `bound`.
__device__ inline void rank_tile(const IndexerParams& params, const IndexedToken& at,
                                 std::int64_t first, std::int64_t bound, ScoreShared& shared,
                                 std::uint32_t* ranks) {
  const auto position = [&](int i) { return first + i < bound ? first + i : -1; };
  score_tile(params, at, position, shared, [&](int i, const RowPlace& place, float score) {
    if (first + i < bound) ranks[first + i] = place.exists() ? rank_of(score) : kAbsentRank;
  });
}

namespace {

struct IndexerShared {
  ScoreShared score;
  SelectRanksShared select;
};

// Keys that the token may see and that the page table has room for: those that are whole once the last token that it
// may see has come.
__device__ std::int64_t bound_of(const IndexerParams& params, const TokenPlace& place) {
  const std::int64_t all_tokens = std::int64_t{params.keys.view.cache_lengths[place.sequence]} +
                                  params.row_offsets[place.sequence + 1] -
                                  params.row_offsets[place.sequence];
  const std::int64_t tokens = params.is_causal ? place.position + 1 : all_tokens;
  return min(tokens / params.tokens_per_key, params.capacity);
}

__device__ void index_token(const IndexerParams& params, std::int64_t token,
                            const TokenPlace& place, IndexerShared& shared) {
  const KvLayerView& view = params.keys.view;
  const std::int64_t bound = bound_of(params, place);
  std::int32_t* out = params.out + token * params.out_stride;
  if (bound <= params.top_k) {
    const auto mapped = [&](std::int64_t key) {
      return is_mapped(view, place.sequence, key) ? kNanRank : kAbsentRank;
    };
    return write_selection(mapped, bound, {.rank = kAbsentRank, .ties = 0}, params.top_k, out,
                           shared.select);
  }
  std::uint32_t* ranks = params.ranks + blockIdx.x * params.capacity;
  const IndexedToken at{.token = token, .sequence = static_cast<int>(place.sequence)};
  for (std::int64_t first = 0; first < bound; first += kIndexerTile) {
    rank_tile(params, at, first, bound, shared.score, ranks);
  }
  __syncthreads();
  const auto rank = [&](std::int64_t key) { return ranks[key]; };
  const Threshold threshold = find_threshold(rank, bound, params.top_k, shared.select);
  write_selection(rank, bound, threshold, params.top_k, out, shared.select);
}

__global__ void __launch_bounds__(kIndexerThreads, 2)
    index_tokens(const __grid_constant__ IndexerParams params) {
  __shared__ IndexerShared shared;
  const KvLayerView& view = params.keys.view;
  for (std::int64_t token = blockIdx.x; token < params.tokens; token += params.num_blocks) {
    const TokenPlace place =
        place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
    if (!place.exists()) continue;
    index_token(params, token, place, shared);
    __syncthreads();  // the next token's scores overwrite what the selection reads
  }
}

// The scores of 64 positions in `out`, from slot `first` on.
__device__ void score_slots(const IndexerParams& params, const IndexedToken& at, std::int64_t first,
                            ScoreShared& shared) {
  const std::int32_t* out = params.out + at.token * params.out_stride + first;
  float* scores = params.scores + at.token * params.scores_stride + first;
  const auto slots = static_cast<int>(min(params.top_k - first, std::int64_t{kIndexerTile}));
  const auto position = [&](int i) { return std::int64_t{i < slots ? out[i] : -1}; };
  score_tile(params, at, position, shared, [&](int i, const RowPlace& row, float score) {
    if (i < slots) scores[i] = row.exists() ? score : -INFINITY;
  });
}

// A block for 64 slots of a token.
__global__ void __launch_bounds__(kIndexerThreads, 2)
    score_selection(const __grid_constant__ IndexerParams params, int tiles) {
  __shared__ IndexerShared shared;
  const KvLayerView& view = params.keys.view;
  for (std::int64_t tile = blockIdx.x; tile < params.tokens * tiles; tile += gridDim.x) {
    const std::int64_t token = tile / tiles;
    const TokenPlace place =
        place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
    if (!place.exists()) continue;
    score_slots(params, {.token = token, .sequence = static_cast<int>(place.sequence)},
                tile % tiles * kIndexerTile, shared.score);
  }
}

}  // namespace

void launch_scores(const IndexerParams& params, cudaStream_t stream) {
  const std::int64_t tiles = (params.top_k + kIndexerTile - 1) / kIndexerTile;
  launch(score_selection,
         {.grid = dim3(num_blocks(params.tokens * tiles, 1)), .block = dim3(kIndexerThreads)},
         stream, params, static_cast<int>(tiles));
}

void launch_indexer(const IndexerParams& params, cudaStream_t stream) {
  launch(index_tokens,
         {.grid = dim3(static_cast<unsigned>(params.num_blocks)), .block = dim3(kIndexerThreads)},
         stream, params);
}

}  // namespace quire::cuda::any::mla_indexer
