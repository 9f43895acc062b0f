// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 query rows over their blocks of keys, tile after tile. The scores of the
// next block, be it the first of the next tile, are computed beside the sum over this one's values.
#pragma once

#include <type_traits>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/prefill_attention/convert_queries.cuh"
#include "cuda/common/prefill_attention/epilogue.cuh"
#include "cuda/common/prefill_attention/products.cuh"
#include "cuda/common/prefill_attention/query_rows.cuh"
#include "cuda/common/prefill_attention/roles/load.cuh"

namespace quire::cuda {

template <PrefillConfig kConfig> class PrefillAttend {
 public:
  using Shared = PrefillShared<kConfig>;
  using Step = StepProducts<kConfig>;
  using Block = typename Step::Block;
  using Weights = typename Step::Weights;
  using Sums = typename Step::Sums;
  static constexpr DType kProduct = kConfig.product_dtype();

  __device__ PrefillAttend(const PrefillParams& params, Shared& shared, int consumer)
      : params_(params), shared_(shared), order_(consumer), row_(consumer * kWgmmaRows) {
    if constexpr (kConfig.ends == Ends::chained) links_ = __ldg(params.chain.links);
  }

  __device__ void run() {
    PrefillTile tile = next_tile();
    if (tile.sequence < 0) return;
    Block scores;
    Weights weights;
    Sums sums;
    start(tile, scores);
    while (tile.sequence >= 0) {
      if (tile.end_block - tile.first_block == 1) release_queries();
      all_see_ = seen_by_all<kConfig>(params_, tile);
      LazySoftmax softmax;
      int block = tile.end_block - 1;
      zero_from_ = tile.end_key - first_key(tile, block);
      prepare(tile, block, scores);
      const float to_log2[2] = {row_to_log2(0), row_to_log2(1)};
      float keep[2];
      softmax.rise<kProduct>(scores, to_log2, keep);
      weigh(softmax, scores, to_log2, weights);
      for (--block; block >= tile.first_block; --block) {
        step(tile, block, softmax, scores, weights, sums);
      }
      tile = finish(tile, softmax, scores, weights, sums);
    }
  }

 private:
  __device__ int thread_row() const {
    return row_ + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  }
  __device__ const std::byte* queries() const { return &shared_.q[q_at_.stage][row_ * kRowBytes]; }
  __device__ PrefillTile next_tile() { return shared_.take_tile(tile_at_); }
  __device__ bool leads() const { return threadIdx.x % 128 == 0; }
  // One thread speaks for all: it has seen the end of their products, and nobody else reads V.
  __device__ void free_values(int stage) {
    if (leads()) shared_.value_ring.empty[stage].arrive();
  }
  // The tile's last scores are there: the next tile's q may come.
  __device__ void release_queries() {
    if (leads()) shared_.q_ring(row_).empty[q_at_.stage].arrive();
  }

  // What a score of the thread's row i is multiplied by before the softmax takes it.
  __device__ float row_to_log2(int i) const {
    if constexpr (kConfig.scores == Scores::modified) {
      return 1.0F;
    } else {
      const float by = params_.scores.scale * kLog2e;
      return kConfig.converts() ? by * factor_[i] : by;
    }
  }
  // q of the tile at q_at_, as the products take it.
  __device__ void await_queries(const PrefillTile& tile, float (&factor)[2]) {
    shared_.q_ring(row_).wait_full(q_at_);
    if constexpr (kConfig.converts()) {
      static_assert(kConfig.dtype == DType::bf16);
      std::byte* rows = &shared_.q[q_at_.stage][row_ * kRowBytes];
      if constexpr (kConfig.products == Products::mixed) {
        split_queries<kConfig>(rows, factor);
      } else {
        convert_queries<kConfig>(rows, factor);
      }
      const float scale = params_.scales.of_keys(tile.kv_head);
      factor[0] *= scale;
      factor[1] *= scale;
      sync_warpgroup();
    }
  }

  // The very first scores, alone. Taking a turn for them costs nothing, and with wide values it makes
  // the assembler spill less: nothing at all where scores are only scaled.
  static constexpr bool kStartsInOrder = kConfig.value_dim > 192;
  __device__ void start(const PrefillTile& tile, Block& scores) {
    await_queries(tile, factor_);
    shared_.await_keys(key_at_);
    holes_ = shared_.read_holes(key_at_.stage);
    if constexpr (kStartsInOrder) order_.wait();
    Step::start_scores(queries(), shared_.keys[key_at_.stage], scores);
    if constexpr (kStartsInOrder) order_.pass_on();
    holes_ = Shared::tell_holes(holes_);
    cute::warpgroup_wait<0>();
    pin(scores);
    shared_.free_keys(key_at_.stage);
    key_at_.advance();
  }

  __device__ static int first_key(const PrefillTile& tile, int block) {
    return tile.first_key + block * kConfig.block_keys;
  }
  // From products to scores that the softmax may take.
  __device__ void prepare(const PrefillTile& tile, int block, Block& scores) const {
    const int first = first_key(tile, block);
    if constexpr (kConfig.scores == Scores::modified) {
      modify(params_, tile, thread_row(), first, factor_, scores);
    }
    if (holes_ != 0 || first < all_see_.first || first + kConfig.block_keys > all_see_.end) {
      hide<kConfig>(params_, tile, thread_row(), first, holes_, scores);
    }
  }

  // Scores of `block` beside the sum over the one before it.
  __device__ void step(const PrefillTile& tile, int block, LazySoftmax& softmax, Block& scores,
                       Weights& weights, Sums& sums) {
    if (!has_awaited_) await_stages();
    const int key_stage = key_at_.stage;
    const int value_stage = value_at_.stage;
    key_at_.advance();
    value_at_.advance();
    holes_ = shared_.read_holes(key_stage);
    order_.wait();
    Step::start_both(queries(), shared_.keys[key_stage], scores, weights,
                     shared_.values[value_stage], sums, starts_sum_);
    order_.pass_on();
    holes_ = Shared::tell_holes(holes_);
    // While the products run: the next step's stages, which seldom are late.
    has_awaited_ = block > tile.first_block;
    if (has_awaited_) await_stages();
    Step::await_scores(scores, weights, sums);
    shared_.free_keys(key_stage);
    if (block == tile.first_block) release_queries();
    prepare(tile, block, scores);
    const float to_log2[2] = {row_to_log2(0), row_to_log2(1)};
    float keep[2];
    const bool rises = softmax.rise<kProduct>(scores, to_log2, keep);
    Step::keep_sums(sums, rises, keep);
    pin(weights);
    free_values(value_stage);
    starts_sum_ = false;
    weigh(softmax, scores, to_log2, weights);
  }
  __device__ static void weigh(LazySoftmax& softmax, Block& scores, const float (&to_log2)[2],
                               Weights& weights) {
    const float offset[2] = {softmax.offset<kProduct>(to_log2[0], 0),
                             softmax.offset<kProduct>(to_log2[1], 1)};
    softmax.weigh<kProduct>(scores, to_log2, offset, weights);
  }

  // The K block of the next scores and the V block of the next sum.
  __device__ void await_stages() {
    shared_.await_keys(key_at_);
    await_values();
  }

  // A tile's first block may be the last of its keys: what stands behind them becomes zeros.
  __device__ void await_values() {
    shared_.await_values(value_at_);
    if (zero_from_ < kConfig.block_keys) {
      zero_values<kConfig>(shared_.values[value_at_.stage], zero_from_);
      sync_warpgroup();
    }
    zero_from_ = kConfig.block_keys;
  }
  // What all threads of the warpgroup have written, for products to read.
  __device__ void sync_warpgroup() const {
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(128, warpgroup_barrier());
  }
  __device__ std::uint32_t warpgroup_barrier() const {
    return static_cast<std::uint32_t>(kConfig.consumers + row_ / kWgmmaRows);
  }

  // A tile's end, in attend.cuh. The sum runs while the next tile's q is awaited, its first scores
  // while rows are stored. But splits of a tile are put together in a loop, beside which the compiler
  // lets no products run, and wide values leave no registers for it.
  static constexpr bool kStoresBeside = !kConfig.cuts_tiles() && kConfig.value_dim <= 192;
  // Where there is room for them in shared memory beside q, K and V.
  static constexpr bool kStagesRows =
      kStoresBeside && kConfig.head_dim == 192 && kConfig.value_dim == 128;
  // The next tile, in registers; beside wide sums there are none for a second one, and it stays in
  // shared memory until rows are stored.
  using NextTile =
      std::conditional_t<(kConfig.value_dim > 192), const PrefillTile&, const PrefillTile>;
  __device__ PrefillTile finish(const PrefillTile& tile, const RowSoftmax& softmax, Block& scores,
                                Weights& weights, Sums& sums);
  __device__ void end_sum(const PrefillTile& next, Block& scores, Weights& weights, Sums& sums,
                          float (&next_factor)[2]);
  __device__ void await_first_keys(const PrefillTile& next);
  __device__ void await_first_scores(const PrefillTile& next, Block& scores);
  __device__ void store(const PrefillTile& tile, RowSoftmax softmax, Sums& sums);

  const PrefillParams& params_;
  Shared& shared_;
  WarpgroupOrder<kConfig.consumers> order_;
  const int row_;                       // the warpgroup's first, in a tile
  float factor_[2] = {1.0F, 1.0F};      // that q's rows and K were divided by
  int zero_from_ = kConfig.block_keys;  // first row of the next V block behind the sequence's end
  bool starts_sum_ = true;
  bool has_awaited_ = false;  // the stages of the next step
  std::uint32_t holes_ = 0;   // in the keys of the scores
  std::uint32_t links_ =
      0;  // as ChainedRows has them: read once, a tile's end need not wait for it
  KeyInterval all_see_{};
  RingPosition<kConfig.key_stages> key_at_;
  RingPosition<kConfig.value_stages> value_at_;
  RingPosition<kConfig.q_buffers> q_at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

// The end of a consumer's tile: its last sum, the first scores of the next tile, its rows stored or kept.

// The sum over the tile's last block and the first scores of the next tile; then its rows are
// stored. Where there is no next tile the scores are of whatever is there and nobody reads them.
template <PrefillConfig kConfig>
__device__ inline PrefillTile PrefillAttend<kConfig>::finish(const PrefillTile& tile,
                                                             const RowSoftmax& softmax,
                                                             Block& scores, Weights& weights,
                                                             Sums& sums) {
  float next_factor[2] = {1.0F, 1.0F};
  NextTile next = shared_.look_at_tile(tile_at_);
  end_sum(next, scores, weights, sums, next_factor);
  starts_sum_ = true;
  has_awaited_ = false;
  if constexpr (kConfig.converts()) {
    const float scale = params_.scales.of_values(tile.kv_head);
    scale_rows(sums, {scale, scale});
  }
  store(tile, softmax, sums);
  if constexpr (kStoresBeside) await_first_scores(next, scores);
  factor_[0] = next_factor[0];
  factor_[1] = next_factor[1];
  const PrefillTile taken = next;
  shared_.pass_tile(tile_at_);
  return taken;
}

template <PrefillConfig kConfig>
__device__ inline void PrefillAttend<kConfig>::end_sum(const PrefillTile& next, Block& scores,
                                                       Weights& weights, Sums& sums,
                                                       float (&next_factor)[2]) {
  q_at_.advance();
  if constexpr (kStoresBeside) {
    await_first_keys(next);
    await_values();
    order_.wait();
    Step::start_sum(weights, shared_.values[value_at_.stage], sums, starts_sum_);
    order_.pass_on();
    if (next.sequence >= 0) await_queries(next, next_factor);
    Step::start_scores(queries(), shared_.keys[key_at_.stage], scores);
    holes_ = Shared::tell_holes(holes_);
    cute::warpgroup_wait<1>();
    pin(sums);
    pin(weights);
    free_values(value_at_.stage);
    value_at_.advance();
  } else {
    const int key_stage = key_at_.stage;
    const int value_stage = value_at_.stage;
    if (next.sequence >= 0) await_queries(next, next_factor);
    await_first_keys(next);
    await_values();
    key_at_.advance();
    value_at_.advance();
    order_.wait();
    Step::start_both(queries(), shared_.keys[key_stage], scores, weights,
                     shared_.values[value_stage], sums, starts_sum_);
    order_.pass_on();
    holes_ = Shared::tell_holes(holes_);
    cute::warpgroup_wait<0>();
    pin(scores);
    pin(sums);
    pin(weights);
    if (next.sequence >= 0) shared_.free_keys(key_stage);
    free_values(value_stage);
  }
}

// Of the next tile, if there is one.
template <PrefillConfig kConfig>
__device__ inline void PrefillAttend<kConfig>::await_first_keys(const PrefillTile& next) {
  if (next.sequence < 0) return;
  shared_.await_keys(key_at_);
  holes_ = shared_.read_holes(key_at_.stage);
}

template <PrefillConfig kConfig>
__device__ inline void PrefillAttend<kConfig>::await_first_scores(const PrefillTile& next,
                                                                  Block& scores) {
  cute::warpgroup_wait<0>();
  pin(scores);
  if (next.sequence >= 0) shared_.free_keys(key_at_.stage);
  key_at_.advance();
}

template <PrefillConfig kConfig>
__device__ inline void PrefillAttend<kConfig>::store(const PrefillTile& tile, RowSoftmax softmax,
                                                     Sums& sums) {
  float to_log2[2] = {row_to_log2(0), row_to_log2(1)};
  if constexpr (kConfig.ends == Ends::chained) {
    chain_rows<kConfig>(params_, links_, tile, thread_row(), softmax, to_log2, sums);
  } else {
    if constexpr (kConfig.cuts_tiles()) {
      if (tile.splits.slot >= 0) {
        const SplitStore<kConfig> splits(params_.tail, tile.splits, row_ / kWgmmaRows);
        splits.keep(whole_rows(softmax, to_log2), sums);
        if (!splits.is_last(shared_.is_last[row_ / kWgmmaRows], warpgroup_barrier())) return;
        softmax = splits.join(sums);
        to_log2[0] = to_log2[1] = 1.0F;
      }
    }
    if constexpr (kStagesRows) {
      into_log2_units(softmax, to_log2);
      store_staged<kConfig>(params_, tile, thread_row(), softmax, sums);
    } else {
      store_rows<kConfig>(params_, tile, thread_row(), softmax, to_log2, sums);
    }
  }
}

}  // namespace quire::cuda
