// SPDX-License-Identifier: Apache-2.0
// The two warpgroups that score, weigh and sum, each every second tile; their sums are added when an
// work tile ends.
#pragma once

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/sparse_mla/fp8/finish.cuh"
#include "cuda/sm90/sparse_mla/fp8/shared.cuh"
#include "cuda/sm90/sparse_mla/fp8/tile_sums.cuh"
#include "cuda/sm90/sparse_mla/params.h"

namespace quire::cuda::sm90::sparse_mla {

// A token's queries. Latent columns become f16, exactly but for the range: so each head is multiplied by
// a power of two that brings its largest number to the top of it. (What is 2^40 below that is lost.)
// Rope columns stay bf16. A warp takes a head at a time, a lane 16 of its columns.

// 16 columns.
struct QueryChunk {
  std::uint32_t words[8] = {};

  __device__ void load(const std::byte* from) {
    const auto* splits = reinterpret_cast<const uint4*>(from);
    const uint4 low = splits[0];
    const uint4 high = splits[1];
    words[0] = low.x, words[1] = low.y, words[2] = low.z, words[3] = low.w;
    words[4] = high.x, words[5] = high.y, words[6] = high.z, words[7] = high.w;
  }
  // The largest exponent of a finite number, in its place.
  __device__ std::uint32_t top() const {
    constexpr std::uint32_t kInfinite = 0x7f80;
    std::uint32_t most = 0;
#pragma unroll
    for (const std::uint32_t word : words) {
      const std::uint32_t low = word & kInfinite;
      const std::uint32_t high = word >> 16 & kInfinite;
      most = max(most, low == kInfinite ? 0 : low);
      most = max(most, high == kInfinite ? 0 : high);
    }
    return most;
  }
  template <DType kTo> __device__ void scale(float by) {
#pragma unroll
    for (std::uint32_t& word : words) {
      word =
          pack_pair<kTo>(__uint_as_float(word << 16) * by, __uint_as_float(word & 0xffff0000) * by);
    }
  }
  // `split`: of the row's eight in a swizzle column. In the order of columns, or as decoded rows have them: two of
  // every four, then the other two.
  __device__ void store_in_order(std::byte* row, int head, int split) const {
    at(row, head, split) = {words[0], words[1], words[2], words[3]};
    at(row, head, split + 1) = {words[4], words[5], words[6], words[7]};
  }
  __device__ void store_permuted(std::byte* row, int head, int split) const {
    at(row, head, split) = {words[0], words[2], words[4], words[6]};
    at(row, head, split + 1) = {words[1], words[3], words[5], words[7]};
  }

 private:
  __device__ static uint4& at(std::byte* row, int head, int split) {
    return *reinterpret_cast<uint4*>(row + ((split ^ (head % 8)) * 16));
  }
};

template <typename Variant> class QueryLoad {
 public:
  __device__ QueryLoad(const SparseParams& params, Fp8Shared<Variant>& shared)
      : params_(params), shared_(shared) {}

  // By all warps of the warpgroups that attend.
  __device__ void load(const WorkTileInfo& work_tile) {
    const auto warp = static_cast<int>(threadIdx.x / 32);
    const std::byte* from = params_.q_rows + work_tile.token * params_.q_token_bytes;
#pragma unroll 1
    for (int first = warp * kWarpHeads; first < (warp + 1) * kWarpHeads; first += kAtOnce) {
      QueryChunk latent[kAtOnce];
      QueryChunk rope[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int head = work_tile.first_head + first + i;
        if (head >= params_.work.heads) continue;
        const std::byte* row = from + head * params_.q_head_bytes + lane() * 32;
        latent[i].load(row);
        if (lane() < 4) rope[i].load(row + SparseConfig::kLatent * 2);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) store(first + i, latent[i], rope[i]);
    }
    cutlass::arch::fence_view_async_shared();
  }

 private:
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kWarpHeads = kConfig.heads / (2 * Fp8Config::kWarps);
  static constexpr int kAtOnce = kWarpHeads < 4 ? kWarpHeads : 4;

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }

  __device__ void store(int head, QueryChunk& latent, QueryChunk& rope) {
    const int top = __reduce_max_sync(0xffffffff, max(latent.top(), rope.top())) >> 7;
    const int power = min(max(top, 15), 254);
    const float factor = __int_as_float((268 - power) << 23);  // 2^(141 - power)
    if (lane() == 0) shared_.query_factors[head] = __int_as_float((power - 14) << 23);
    latent.scale<DType::f16>(factor);
    latent.store_permuted(shared_.q[lane() / 4] + head * kRowBytes, head, lane() % 4 * 2);
    if (lane() >= 4) return;
    std::byte* row = shared_.q[Fp8Config::kSwizzleColumns - 1] + head * kRowBytes;
    rope.scale<DType::bf16>(factor);
    rope.store_in_order(row, head, lane() * 2);
  }

  const SparseParams& params_;
  Fp8Shared<Variant>& shared_;
};

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
      shared_.work_tile_ring.wait_full(work_tile_at_);
      const Fp8WorkTileInfo& info = shared_.work_tiles[work_tile_at_.stage];
      const int num_tiles = __shfl_sync(0xffffffff, info.work_tile.num_tiles, 0);
      if (num_tiles == kNoWorkTile) return;
      if (num_tiles != kNobody) attend(info, num_tiles);
      __syncwarp();
      if (lane() == 0) shared_.work_tile_ring.empty[work_tile_at_.stage].arrive();
      work_tile_at_.advance();
    }
  }

 private:
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kColumns = kConfig.thread_heads();
  using Softmax = ColumnSoftmax<Variant>;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x / 32 % Fp8Config::kWarps); }
  __device__ void attend(const Fp8WorkTileInfo& info, int num_tiles) {
    softmax_.reset();
    if (num_tiles > 0) {
      QueryLoad<Variant>(params_, shared_).load(info.work_tile);
      attenders_.sync();
    }
    const int first_tiles = info.first_tiles;
    bool is_first = true;
    for (int tile = 0; tile < num_tiles; ++tile) {
      if (tile % 2 == warpgroup_) {
        attend_tile(tile >= first_tiles, is_first);
        is_first = false;
      }
      row_at_.advance();
    }
    sums_.wait();
    WorkTileFinish<Variant>(params_, shared_, info.work_tile, warpgroup_, attenders_)
        .run(softmax_, sums_);
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
  RingPosition<2> work_tile_at_;
  RingPosition<kConfig.stages> row_at_;
  int turn_ = 0;  // of the two places for weights and scales
};

}  // namespace quire::cuda::sm90::sparse_mla
