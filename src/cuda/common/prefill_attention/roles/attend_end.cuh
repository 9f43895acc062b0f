// SPDX-License-Identifier: Apache-2.0
// The end of a consumer's tile: its last sum, the first scores of the next tile, its rows stored or kept.
#pragma once

#include "cuda/common/prefill_attention/chain_rows.cuh"
#include "cuda/common/prefill_attention/join_pieces.cuh"
#include "cuda/common/prefill_attention/roles/attend.cuh"

namespace quire::cuda {

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
    turns_.wait();
    Step::start_sum(weights, shared_.values[value_at_.stage], sums, starts_sum_);
    turns_.pass_on();
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
    turns_.wait();
    Step::start_both(queries(), shared_.keys[key_stage], scores, weights,
                     shared_.values[value_stage], sums, starts_sum_);
    turns_.pass_on();
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
      if (tile.pieces.slot >= 0) {
        const PieceStore<kConfig> pieces(params_.tail, tile.pieces, row_ / kWgmmaRows);
        pieces.keep(whole_rows(softmax, to_log2), sums);
        if (!pieces.is_last(shared_.is_last[row_ / kWgmmaRows], warpgroup_barrier())) return;
        softmax = pieces.join(sums);
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
