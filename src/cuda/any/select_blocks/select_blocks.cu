// SPDX-License-Identifier: Apache-2.0
// Three steps on one stream: ranks of all blocks become "absent", a kernel raises them by the scores of 64 keys and a tile
// of rows at a time, another chooses the best of every row.
#include <algorithm>

#include "cuda/any/select_blocks/launch.h"
#include "cuda/common/general_attention/attend_tile.cuh"
#include "cuda/common/rows/rank.cuh"
#include "cuda/common/rows/select_ranks.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/runtime/status.h"

namespace quire::cuda::any::select_blocks {

struct SelectParams {
  PlainRows q;  // [tokens, heads, key width]
  std::int64_t tokens = 0;
  std::int32_t heads = 0;
  std::int32_t group = 1;                      // query heads of a KV head
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  RowReader keys;
  bool is_causal = true;
  std::int64_t block_size = 0;
  std::int64_t first_blocks = 0;
  std::int64_t local_blocks = 0;
  std::int32_t* out = nullptr;  // [tokens, heads, max_blocks]
  std::int64_t out_token_stride = 0;
  std::int64_t out_head_stride = 0;
  std::int64_t max_blocks = 0;
  // The tokens [first_token, first_token + part_tokens) of the batch.
  std::int64_t first_token = 0;
  std::int64_t part_tokens = 0;
  std::uint32_t* ranks = nullptr;  // scratch [part_tokens, heads, capacity]
  std::int64_t capacity = 0;       // blocks that a row of the page table can hold
};

// Keys of its sequence that a token sees: those in front of this one, where the page table has room for them.
__device__ std::int64_t end_of(const SelectParams& params, std::int64_t sequence,
                               std::int64_t position) {
  const KvLayerView& view = params.keys.view;
  const std::int64_t num_keys = std::int64_t{view.cache_lengths[sequence]} +
                                params.row_offsets[sequence + 1] - params.row_offsets[sequence];
  const std::int64_t room = view.max_pages * view.page_size;
  return min(params.is_causal ? position + 1 : num_keys, room);
}

// Rows of a tile, tokens × heads of a group, and the keys that they are scored with.
class ScoredKeys {
 public:
  __device__ ScoredKeys(const SelectParams& params, const RowTile& tile, int kv_head)
      : params_(params),
        tile_(tile),
        kv_head_(kv_head),
        first_token_(params.row_offsets[tile.sequence]),
        cached_(params.keys.view.cache_lengths[tile.sequence]) {}

  __device__ int num_rows() const { return static_cast<int>(tile_.num_rows); }
  __device__ int key_width() const { return params_.q.width; }
  __device__ std::int64_t token(int r) const {
    return first_token_ + (tile_.first_row + r) / params_.group;
  }
  __device__ int head(int r) const {
    return kv_head_ * params_.group + static_cast<int>((tile_.first_row + r) % params_.group);
  }
  __device__ std::int64_t end(int r) const {
    return end_of(params_, tile_.sequence, cached_ + token(r) - first_token_);
  }
  __device__ KeyPlace locate(std::int64_t key) const {
    return {.key = place_row(params_.keys.view, tile_.sequence, key, kv_head_)};
  }
  __device__ void load_query(int r, int column, float (&values)[kVec8]) const {
    if (r >= num_rows()) return set_zero(values);
    load_columns(params_.q,
                 params_.q.data + token(r) * params_.q.token_bytes +
                     std::int64_t{head(r)} * params_.q.head_bytes,
                 column, values);
  }
  __device__ void load_key(const KeyPlace& place, int column, float (&values)[kVec8]) const {
    load_columns(params_.keys, place.key, column, key_width(), values);
  }

 private:
  const SelectParams& params_;
  RowTile tile_;
  int kv_head_;
  std::int64_t first_token_;
  std::int64_t cached_;
};

__device__ inline std::uint32_t rank_of_key(float score) {
  return rank_of_number(isnan(score) ? -INFINITY : score);
}

// Of one row and the keys [first, first + 64), whose products a warp holds two a lane. Maxima of integers are the same in
// any order.
template <typename Config>
__device__ void raise_blocks(const SelectParams& params, const ScoredKeys& source,
                             const AttendShared<Config>& shared, int r, std::int64_t first) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t end = source.end(r);
  const std::int64_t row = (source.token(r) - params.first_token) * params.heads + source.head(r);
  std::uint32_t* blocks = params.ranks + row * params.capacity;
  std::uint32_t ranks[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = lane + 32 * half;
    const bool is_there = first + i < end && shared.places[i].exists();
    ranks[half] = is_there ? rank_of_key(shared.weights[r][i]) : kAbsentRank;
  }
  if (first / params.block_size == (first + Config::kKeys - 1) / params.block_size) {
    const std::uint32_t best = __reduce_max_sync(0xffffffffu, max(ranks[0], ranks[1]));
    if (lane == 0 && best != kAbsentRank) atomicMax(blocks + first / params.block_size, best);
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (ranks[half] == kAbsentRank) continue;
    atomicMax(blocks + (first + lane + 32 * half) / params.block_size, ranks[half]);
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 2)
    score_blocks(const __grid_constant__ SelectParams params) {
  __shared__ AttendShared<Config> shared;
  const RowTile tile = find_row_tile(params.row_offsets, params.keys.view.batch, params.group,
                                     Config::kRows, blockIdx.x);
  if (tile.is_empty()) return;
  const ScoredKeys source(params, tile, static_cast<int>(blockIdx.y));
  const std::int64_t first_token = source.token(0);
  const std::int64_t last_token = source.token(source.num_rows() - 1);
  if (last_token < params.first_token || first_token >= params.first_token + params.part_tokens) {
    return;
  }
  const std::int64_t end = source.end(source.num_rows() - 1);
  const std::int64_t step = std::int64_t{gridDim.z} * Config::kKeys;
  for (std::int64_t first = std::int64_t{blockIdx.z} * Config::kKeys; first < end; first += step) {
    __syncthreads();  // the tile before this one is not read any more
    if (threadIdx.x < Config::kKeys) {
      const std::int64_t key = first + threadIdx.x;
      shared.places[threadIdx.x] = key < end ? source.locate(key) : KeyPlace{};
    }
    __syncthreads();
    multiply_keys<Config>(source, shared);
#pragma unroll
    for (int i = 0; i < Config::kWarpRows; ++i) {
      const int r = static_cast<int>(threadIdx.x) / 32 * Config::kWarpRows + i;
      if (r >= source.num_rows()) continue;
      const std::int64_t token = source.token(r) - params.first_token;
      if (token >= 0 && token < params.part_tokens) raise_blocks(params, source, shared, r, first);
    }
  }
}

// A CTA per token and head.
__global__ void __launch_bounds__(kSelectThreads)
    choose_blocks(const __grid_constant__ SelectParams params) {
  __shared__ SelectRanksShared shared;
  const KvLayerView& view = params.keys.view;
  const std::int64_t token = params.first_token + blockIdx.x / params.heads;
  const auto head = static_cast<int>(blockIdx.x % params.heads);
  const TokenPlace place =
      place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
  if (!place.exists()) return;
  const std::int64_t end = end_of(params, place.sequence, place.position);
  const std::int64_t bound = (end + params.block_size - 1) / params.block_size;
  const std::int64_t own = place.position / params.block_size;
  const std::uint32_t* ranks = params.ranks + std::int64_t{blockIdx.x} * params.capacity;
  const auto rank = [&](std::int64_t block) {
    const std::uint32_t found = ranks[block];
    const bool is_local = block <= own && own - block < params.local_blocks;
    const bool is_forced = is_local || block < params.first_blocks;
    return is_forced && found != kAbsentRank ? 0xffffffffu : found;
  };
  Threshold threshold{.rank = kAbsentRank, .ties = 0};
  if (bound > params.max_blocks) {
    threshold = find_threshold(rank, bound, params.max_blocks, shared);
  }
  write_selection(rank, bound, threshold, params.max_blocks,
                  params.out + token * params.out_token_stride + head * params.out_head_stride,
                  shared);
}

namespace {

constexpr std::int64_t kMaxScratchBytes = std::int64_t{256} << 20;
constexpr std::int64_t kWantedBlocks = 528;  // four for each SM of an H200

std::int64_t capacity_of(const CacheShape& cache, std::int64_t block_size) {
  return (cache.max_pages * cache.page_size + block_size - 1) / block_size;
}

template <typename Config> void score(const SelectParams& params, cudaStream_t stream) {
  const std::int64_t tiles =
      num_row_tiles(params.tokens * params.group, params.keys.view.batch, Config::kRows);
  const std::int64_t kv_heads = params.keys.view.num_heads;
  const std::int64_t key_tiles =
      params.keys.view.max_pages * params.keys.view.page_size / Config::kKeys + 1;
  const std::int64_t splits = std::clamp<std::int64_t>(kWantedBlocks / (tiles * kv_heads), 1,
                                                       std::min(key_tiles, kWantedBlocks));
  launch(score_blocks<Config>,
         {.grid = dim3(num_blocks(tiles, 1), static_cast<unsigned>(kv_heads),
                       static_cast<unsigned>(splits)),
          .block = dim3(Config::kThreads)},
         stream, params);
}

SelectParams params_of(const SelectBlocksArgs& args) {
  const KvLayerView keys = args.cache.key(args.layer);
  return {.q = plain_rows(args.q),
          .tokens = args.q.shape[0],
          .heads = static_cast<std::int32_t>(args.q.shape[1]),
          .group = static_cast<std::int32_t>(args.q.shape[1] / keys.num_heads),
          .row_offsets = args.row_offsets.as<const std::uint32_t>(),
          .keys = row_reader(keys),
          .is_causal = args.mask.root().kind == MaskKind::causal,
          .block_size = args.block_size,
          .first_blocks = args.first_blocks,
          .local_blocks = args.local_blocks,
          .out = args.out.as<std::int32_t>(),
          .out_token_stride = args.out.strides[0],
          .out_head_stride = args.out.strides[1],
          .max_blocks = args.out.shape[2]};
}

class SelectKernel final : public Kernel<SelectBlocksArgs> {
 public:
  explicit SelectKernel(const SelectBlocksProblem& problem)
      : heads_(problem.heads), capacity_(capacity_of(problem.cache, problem.block_size)) {
    const std::int64_t token_bytes =
        std::max<std::int64_t>(1, heads_ * capacity_ * std::int64_t{sizeof(std::uint32_t)});
    const std::int64_t fitting = std::max<std::int64_t>(1, kMaxScratchBytes / token_bytes);
    part_tokens_ = std::min(fitting, std::max<std::int64_t>(problem.ragged.tokens, 1));
  }

  std::int64_t workspace_bytes() const override {
    Carver counter;
    carve(counter);
    return counter.bytes();
  }

  void run(const SelectBlocksArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
    const DeviceScope scope(args.q.device);
    const auto stream = static_cast<cudaStream_t>(context.stream);
    Carver carver(context.workspace);
    SelectParams params = params_of(args);
    params.ranks = carve(carver);
    params.capacity = capacity_;
    for (std::int64_t first = 0; first < params.tokens; first += part_tokens_) {
      params.first_token = first;
      params.part_tokens = std::min(part_tokens_, params.tokens - first);
      run_part(params, stream);
    }
  }

 private:
  std::uint32_t* carve(Carver& carver) const {
    return carver.take<std::uint32_t>(part_tokens_ * heads_ * capacity_);
  }

  static void run_part(const SelectParams& params, cudaStream_t stream) {
    const std::int64_t rows = params.part_tokens * params.heads;
    const std::int64_t bytes = rows * params.capacity * std::int64_t{sizeof(std::uint32_t)};
    static_assert(kAbsentRank == 0);
    check(cudaMemsetAsync(params.ranks, 0, static_cast<std::size_t>(bytes), stream),
          "cudaMemsetAsync");
    const bool is_short = params.tokens * params.group <= 8 * params.keys.view.batch;
    if (is_short) {
      score<AttendConfig<8, 1>>(params, stream);
    } else {
      score<AttendConfig<32, 1>>(params, stream);
    }
    launch(choose_blocks, {.grid = dim3(num_blocks(rows, 1)), .block = dim3(kSelectThreads)},
           stream, params);
  }

  std::int64_t heads_;
  std::int64_t capacity_;
  std::int64_t part_tokens_;
};

}  // namespace

KernelPtr<SelectBlocksArgs> prepare_general(const SelectBlocksProblem& problem) {
  return std::make_unique<const SelectKernel>(problem);
}

}  // namespace quire::cuda::any::select_blocks
