// SPDX-License-Identifier: Apache-2.0
// The two warpgroups that score, weigh and sum, each every second tile; their sums are added when an
// item ends.
#pragma once

#include "cuda/sm90/sparse_mla/fp8/finish.cuh"
#include "cuda/sm90/sparse_mla/fp8/load_queries.cuh"
#include "cuda/sm90/sparse_mla/fp8/tile_sums.cuh"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant> class AttendFp8Role {
 public:
  __device__ AttendFp8Role(const SparseParams& params, Fp8Shared<Variant>& shared, int warpgroup)
      : params_(params),
        shared_(shared),
        warpgroup_(warpgroup),
        attenders_{.barrier = shared.attenders},
        softmax_{.bases = shared.bases[warpgroup], .total = {}} {}

  __device__ void run() {
    while (true) {
      shared_.item_ring.wait_full(item_at_);
      const Fp8ItemNote& note = shared_.notes[item_at_.stage];
      const int num_tiles = __shfl_sync(0xffffffff, note.item.num_tiles, 0);
      if (num_tiles == kNoItem) return;
      if (num_tiles != kNobody) attend(note, num_tiles);
      __syncwarp();
      if (lane() == 0) shared_.item_ring.empty[item_at_.stage].arrive();
      item_at_.advance();
    }
  }

 private:
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kColumns = kConfig.thread_heads();
  using Softmax = ColumnSoftmax<Variant>;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x / 32 % Fp8Config::kWarps); }
  __device__ void attend(const Fp8ItemNote& note, int num_tiles) {
    softmax_.reset();
    if (num_tiles > 0) {
      QueryLoad<Variant>(params_, shared_).load(note.item);
      attenders_.sync();
    }
    const int first_tiles = note.first_tiles;
    bool is_first = true;
    for (int tile = 0; tile < num_tiles; ++tile) {
      if (tile % 2 == warpgroup_) {
        attend_tile(tile >= first_tiles, is_first);
        is_first = false;
      }
      row_at_.advance();
    }
    sums_.wait();
    ItemFinish<Variant>(params_, shared_, note.item, warpgroup_, attenders_).run(softmax_, sums_);
  }

  __device__ void attend_tile(bool is_extra, bool is_first) {
    shared_.rows_full[row_at_.stage].wait(row_at_.phase);
    score(is_extra);
    weigh(is_extra, is_first);
    const std::byte* rows = shared_.rows[row_at_.stage][0];
    sums_.add(rows + warp() * 32 + matrix_row_offset(),
              shared_.scales[warpgroup_][turn_][0] + lane() % 4 * 2,
              opaque(tile_descriptor(shared_.weights[warpgroup_][turn_])), is_first, [&](int step) {
                __syncwarp();
                if (lane() == 0) shared_.rows_empty[row_at_.stage][step].arrive();
              });
    sums_.wait();
    turn_ ^= 1;
  }

  // Of a stream. (Parameters by a run-time index would be loads, one after another.)
  struct Layout {
    ScaleSource scaling;
    int scale_offset;
    int rope_offset;
    bool rope_is_fp8;
  };
  __device__ Layout layout(bool is_extra) const {
    const GatherStream& first = params_.streams[0];
    const GatherStream& second = params_.streams[1];
    const RowPart& first_part = first.rows.row_format.parts[0];
    const RowPart& second_part = second.rows.row_format.parts[0];
    return {
        .scaling = is_extra ? second_part.scale_source : first_part.scale_source,
        .scale_offset = is_extra ? second_part.scale_offset_bytes : first_part.scale_offset_bytes,
        .rope_offset = is_extra ? second.rope_offset_bytes : first.rope_offset_bytes,
        .rope_is_fp8 = is_extra ? second.rope_is_fp8 : first.rope_is_fp8};
  }
  // Of a thread's key i.
  __device__ static int key(int i) { return warp() * 16 + lane() / 4 + 8 * i; }
  __device__ const float4& scales_in_row(int i, int offset) const {
    return *reinterpret_cast<const float4*>(shared_.rows[row_at_.stage][key(i)] + offset);
  }

  __device__ void score(bool is_extra) {
    const Layout layout = this->layout(is_extra);
    OperandFactors factors[2];
    if (layout.scaling == ScaleSource::in_row) {
#pragma unroll
      for (int i = 0; i < 2; ++i) factors[i].take(scales_in_row(i, layout.scale_offset));
    }
    store_scales(factors);
    scores_.compute({.rows = shared_.rows[row_at_.stage][warp() * 16],
                     .offset = layout.rope_offset,
                     .is_fp8 = layout.rope_is_fp8},
                    factors, opaque(tile_descriptor(shared_.q[0])));
  }
  // For the values: a lane of four stores one group's.
  __device__ void store_scales(const OperandFactors (&factors)[2]) {
    const int group = lane() % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto& groups = factors[i].groups;
      const std::uint32_t low = group % 2 == 0 ? groups[0] : groups[1];
      const std::uint32_t high = group % 2 == 0 ? groups[2] : groups[3];
      shared_.scales[warpgroup_][turn_][group][key(i)] =
          static_cast<std::uint16_t>(group < 2 ? low : high);
    }
  }

  __device__ void weigh(bool is_extra, bool is_first) {
    const Layout layout = this->layout(is_extra);
    KeyFactors keys[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (layout.scaling == ScaleSource::in_row) {
        keys[i].take(scales_in_row(i, layout.scale_offset));
      } else if (layout.scaling == ScaleSource::plane) {
        keys[i].take(shared_.row_scales[row_at_.stage][key(i)]);
      }
    }
    const std::uint32_t mask = shared_.masks[row_at_.stage][warp()] >> (lane() / 4);
    const bool is_there[2] = {(mask & 1) != 0, (mask >> 8 & 1) != 0};
    const bool has_risen =
        softmax_.place(scores_.values, keys, is_there, params_.scale_log2, shared_.query_factors);
    std::byte* weights = shared_.weights[warpgroup_][turn_];
    float added[kColumns];
    softmax_.weigh(scores_.values, keys, weights, added);
    cutlass::arch::fence_view_async_shared();
    if (vote_any(warpgroup_, has_risen)) {
      float keep[kColumns];
      softmax_.rise(scores_.values, shared_.tops[warpgroup_], keep,
                    [&] { vote_any(warpgroup_, false); });
      if (!is_first) sums_.scale(keep);
      softmax_.weigh(scores_.values, keys, weights, added);
      cutlass::arch::fence_view_async_shared();
      vote_any(warpgroup_, false);
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) softmax_.total[c] += added[c];
  }

  const SparseParams& params_;
  Fp8Shared<Variant>& shared_;
  int warpgroup_;
  Attenders attenders_;
  Softmax softmax_;
  TileScores<Variant> scores_;
  ValueSums<Variant> sums_;
  RingPosition<2> item_at_;
  RingPosition<kConfig.stages> row_at_;
  int turn_ = 0;  // of the two places for weights and scales
};

}  // namespace quire::cuda::sm90::sparse_mla
