// SPDX-License-Identifier: Apache-2.0
// A finished tile of f32 products. Stored as 16-bit numbers it waits as others do; as f32 half of it fits the same
// registers, and the other half is stored at once.
#pragma once

#include <type_traits>

#include "cuda/common/matmul/deferred_store.cuh"

namespace quire::cuda {

// Eight f32 numbers.
struct F32Run {
  uint4 low;
  uint4 high;
};

__device__ inline F32Run f32_run(const float (&v)[8]) {
  const auto word = [&](int i) { return __float_as_uint(v[i]); };
  return {{word(0), word(1), word(2), word(3)}, {word(4), word(5), word(6), word(7)}};
}

// Neighbouring threads store their two runs one after the other, each thread half of both: stores of half a sector
// cost as much as whole ones. By a whole warp.
__device__ inline F32Run share_with_neighbour(const F32Run& run) {
  const bool is_left = threadIdx.x % 2 == 0;
  const auto swap = [&](unsigned low, unsigned high) {
    return __shfl_xor_sync(0xFFFFFFFF, is_left ? high : low, 1);
  };
  const uint4 other{swap(run.low.x, run.high.x), swap(run.low.y, run.high.y),
                    swap(run.low.z, run.high.z), swap(run.low.w, run.high.w)};
  return {is_left ? run.low : other, is_left ? other : run.high};
}

// A shared run; `to` is where the thread's own begins.
__device__ inline void store_global(std::byte* to, const F32Run& run) {
  std::byte* const half = to - 16 * static_cast<int>(threadIdx.x % 2);
  store_global(half, run.low);
  store_global(half + 32, run.high);
}

template <TileConfig kConfig> struct F32Epilogue : DeferredStore<kConfig, Scaling::none> {
  using Stored16Bit = DeferredStore<kConfig, Scaling::none>;
  static constexpr int kAtOnce = ImmediateHalf::end(kConfig.groups());

  __device__ void take(const TileParams& params, TileShared<kConfig>& shared, int now, int row,
                       const float (&sums)[kConfig.tile_n / 2]) {
    if (shared.routes[now].dtype != DType::f32)
      return Stored16Bit::take(params, shared, now, row, sums);
    const auto finish = finishing<kConfig>(shared, now, row);
    store_runs<kConfig, ImmediateHalf, F32Run>(shared, now, row, [&](int group, F32Run(&made)[2]) {
      make_runs(finish, sums, group, f32_run, made);
#pragma unroll
      for (F32Run& run : made) run = share_with_neighbour(run);
    });
#pragma unroll
    for (int group = kAtOnce; group < kConfig.groups(); ++group) {
      F32Run made[2];
      make_runs(finish, sums, group, f32_run, made);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        this->runs[2 * (group - kAtOnce)][half] = made[half].low;
        this->runs[2 * (group - kAtOnce) + 1][half] = made[half].high;
      }
    }
    this->turn = now;
  }
  template <typename Part>
  __device__ void store(const TileParams& params, TileShared<kConfig>& shared, int row,
                        const float (&sums)[kConfig.tile_n / 2]) {
    if (this->turn < 0) return;
    if (shared.routes[this->turn].dtype != DType::f32) {
      return Stored16Bit::template store<Part>(params, shared, row, sums);
    }
    store_runs<kConfig, DeferredHalf<Part>, F32Run>(
        shared, this->turn, row, [&](int group, F32Run(&out)[2]) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            out[half] = share_with_neighbour({this->runs[2 * (group - kAtOnce)][half],
                                              this->runs[2 * (group - kAtOnce) + 1][half]});
          }
        });
    if constexpr (Part::kIsLast) this->turn = -1;
  }
};

template <TileConfig kConfig>
using FinishedTile =
    std::conditional_t<kConfig.dtype == DType::f32, F32Epilogue<kConfig>, DeferredStore<kConfig>>;

}  // namespace quire::cuda
