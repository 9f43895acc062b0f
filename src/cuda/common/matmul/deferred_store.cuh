// SPDX-License-Identifier: Apache-2.0
// A finished tile that is stored under the first products of the next one. Where products have
// registers of their own (fp8, promoted), it waits as sums; else rounded to 16 bits, in half of theirs.
#pragma once

#include <type_traits>

#include "cuda/common/matmul/config.h"
#include "cuda/common/matmul/finish.cuh"
#include "cuda/common/matmul/store_columns.cuh"

namespace quire::cuda {

// Eight 16-bit numbers.
template <DType kDType> __device__ inline uint4 pack_run(const float (&v)[8]) {
  if constexpr (kDType == DType::bf16) {
    return {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
            pack_bf16(v[6], v[7])};
  } else {
    return {pack_f16(v[0], v[1]), pack_f16(v[2], v[3]), pack_f16(v[4], v[5]), pack_f16(v[6], v[7])};
  }
}

// To global memory, and the compiler knows: stores to anywhere would order the loads of the next
// columns' scales behind them.
__device__ inline void store_global(std::byte* to, const uint4& v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}

__device__ inline void store_global(std::byte* to, const uint2& v) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(v.x),
               "r"(v.y));
}

// A thread's 8 columns of every 32 go to its two tokens' rows, group by group; after the last the
// addresses are given back. `runs_of(group, runs)` makes eight numbers for each token; a Run is what
// store_global takes.
template <TileConfig kConfig, typename Part, typename Run = uint4, typename RunsOf>
__device__ void store_runs(TileShared<kConfig>& shared, int kv_stage, int row,
                           const RunsOf& runs_of) {
  constexpr int kFirst = Part::first(kConfig.groups());
  constexpr int kEnd = Part::end(kConfig.groups());
  const TileRoute route = shared.routes[kv_stage];
  constexpr int kRunBytes = sizeof(Run);
  const int quad = kRunBytes * static_cast<int>(threadIdx.x % 4);
  std::byte* to[2];
  const auto look_up = [&](int side) {
    to[0] = shared.places[kv_stage].rows[side][row];
    to[1] = shared.places[kv_stage].rows[side][row + 8];
  };
  look_up(kFirst < route.second_group ? 0 : 1);
#pragma unroll
  for (int group = kFirst; group < kEnd; ++group) {
    if (group >= route.groups) break;
    if (group == route.second_group) look_up(1);
    Run runs[2];
    runs_of(group, runs);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (to[half] != nullptr) store_global(to[half] + 4 * kRunBytes * group + quad, runs[half]);
    }
  }
  if constexpr (Part::kIsLast) shared.kv_ring.empty[kv_stage].arrive();
}

// Columns 32 · group + 8 · (thread % 4) and the seven after them, of a thread's two tokens. `pack` makes a Run of
// eight numbers.
template <typename Run, typename Pack, typename Finish, int kRegisters>
__device__ void make_runs(const Finish& finish, const float (&sums)[kRegisters], int group,
                          const Pack& pack, Run (&runs)[2]) {
  const typename Finish::Columns columns =
      finish.of_columns(32 * group + 8 * static_cast<int>(threadIdx.x % 4));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float run[8];
    take_run(finish, columns, sums, group, half, run);
    runs[half] = pack(run);
  }
}

template <DType kDType, typename Finish, int kRegisters>
__device__ void round_runs(const Finish& finish, const float (&sums)[kRegisters], int group,
                           uint4 (&runs)[2]) {
  make_runs(
      finish, sums, group, [](const auto& run) { return pack_run<kDType>(run); }, runs);
}

template <TileConfig kConfig, DType kDType, typename Part, typename Finish, int kRegisters>
__device__ void store_sums(TileShared<kConfig>& shared, int kv_stage, int row, const Finish& finish,
                           const float (&sums)[kRegisters]) {
  store_runs<kConfig, Part>(shared, kv_stage, row, [&](int group, uint4(&runs)[2]) {
    round_runs<kDType>(finish, sums, group, runs);
  });
}

template <TileConfig kConfig, Scaling kPromoted = kConfig.promoted_scaling()> struct DeferredStore;

// fp8: the sums themselves wait; those of a whole tile or of half of one.
template <TileConfig kConfig, Scaling kPromoted> struct DeferredStore {
  int kv_stage = -1;  // of the addresses; -1: nothing waits

  __device__ void look_up(const TileParams&, const TileShared<kConfig>&, int, int) {}
  template <int kRegisters>
  __device__ void take(const TileParams&, TileShared<kConfig>&, int now, int,
                       const float (&)[kRegisters]) {
    kv_stage = now;
  }
  __device__ void forget() { kv_stage = -1; }
  template <typename Part, int kRegisters>
  __device__ void store(const TileParams& params, TileShared<kConfig>& shared, int row,
                        const float (&sums)[kRegisters]) {
    if (kv_stage < 0) return;
    const auto store_by = [&](const auto& finish) {
      store_sums<kConfig, DType::bf16, Part>(shared, kv_stage, row, finish, sums);
    };
    const auto finish = finishing<kConfig>(shared, kv_stage, row);
    if (shared.routes[kv_stage].dtype != DType::bf16) {
      store_sums<kConfig, DType::f16, Part>(shared, kv_stage, row, finish, sums);
    } else if (kConfig.scaling == Scaling::blocks && keeps_sums(params)) {
      store_by(KeepSums{});
    } else if (params.outputs.bias == nullptr) {
      store_by(finish.scale_only());
    } else {
      store_by(finish);
    }
    if constexpr (Part::kIsLast) kv_stage = -1;
  }
};

// What a whole tile of row scales in one of Q, K and V, of bf16 and without a bias, is stored by. Looked up
// before the tile's last products end and kept in registers: a load from shared memory takes long beside the
// tensor core's, and the next tile's products wait for every one that stands between them.
template <TileConfig kConfig> struct QuickStore {
  std::byte* to[2];  // a thread's two tokens, its first columns; null where nothing is stored
  float tokens[2];   // scales
  ScaleSums::Columns columns;  // scales of the group to be stored next
  const float* scales;         // of the thread's columns, shared

  __device__ static bool serves(const TileParams& params, const TileRoute& route) {
    return params.outputs.bias == nullptr && route.dtype == DType::bf16 &&
           route.groups == kConfig.groups() && route.second_group == route.groups;
  }
  __device__ void look_up(const TileShared<kConfig>& shared, int kv_stage, int row) {
    const int quad = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to[half] = shared.places[kv_stage].rows[0][row + 8 * half];
      if (to[half] != nullptr) to[half] += 16 * quad;
      tokens[half] = shared.scales.tokens[kv_stage][row + 8 * half];
    }
    scales = shared.scales.columns[kv_stage] + 8 * quad;
    load_columns(scales, columns.scale);
  }
  __device__ void store_group(const float (&sums)[kConfig.tile_n / 2], int group) {
    const ScaleSums finish{.scale = nullptr, .tokens = {tokens[0], tokens[1]}};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float run[8];
      take_run(finish, columns, sums, group, half, run);
      if (to[half] != nullptr) store_global(to[half] + 64 * group, pack_run<DType::bf16>(run));
    }
    if (group + 1 < kConfig.groups()) load_columns(scales + 32 * (group + 1), columns.scale);
  }
  template <typename Part> __device__ void store(const float (&sums)[kConfig.tile_n / 2]) {
#pragma unroll
    for (int group = Part::first(kConfig.groups()); group < Part::end(kConfig.groups()); ++group) {
      store_group(sums, group);
    }
  }
};

template <TileConfig kConfig>
struct DeferredStore<kConfig, Scaling::rows> : DeferredStore<kConfig, Scaling::blocks> {
  using Any = DeferredStore<kConfig, Scaling::blocks>;
  bool is_quick = false;
  QuickStore<kConfig> quick;

  __device__ void look_up(const TileParams& params, const TileShared<kConfig>& shared, int now,
                          int row) {
    is_quick = QuickStore<kConfig>::serves(params, shared.routes[now]);
    if (is_quick) quick.look_up(shared, now, row);
  }
  template <typename Part>
  __device__ void store(const TileParams& params, TileShared<kConfig>& shared, int row,
                        const float (&sums)[kConfig.tile_n / 2]) {
    if (this->kv_stage < 0) return;
    if (!is_quick) return Any::template store<Part>(params, shared, row, sums);
    quick.template store<Part>(sums);
    if constexpr (Part::kIsLast) {
      shared.kv_ring.empty[this->kv_stage].arrive();
      this->kv_stage = -1;
    }
  }
};

// bf16, f16, fp8 that is not promoted.
template <TileConfig kConfig> struct DeferredStore<kConfig, Scaling::none> {
  uint4 runs[kConfig.groups()][2];
  int kv_stage = -1;

  __device__ void look_up(const TileParams&, const TileShared<kConfig>&, int, int) {}
  template <DType kDType, typename Finish, int kRegisters>
  __device__ void round(const Finish& finish, const float (&sums)[kRegisters]) {
#pragma unroll
    for (int group = 0; group < kRegisters / 16; ++group) {
      round_runs<kDType>(finish, sums, group, runs[group]);
    }
  }
  template <int kRegisters>
  __device__ void take(const TileParams& params, TileShared<kConfig>& shared, int now, int row,
                       const float (&sums)[kRegisters]) {
    const auto finish = finishing<kConfig>(shared, now, row);
    if (shared.routes[now].dtype != DType::bf16) {
      round<DType::f16>(finish, sums);
    } else if (params.outputs.bias != nullptr) {
      round<DType::bf16>(finish, sums);
    } else if constexpr (kConfig.has_scales()) {
      round<DType::bf16>(finish.scale_only(), sums);
    } else {
      round<DType::bf16>(KeepSums{}, sums);
    }
    kv_stage = now;
  }
  // Nobody will read the registers: those of a tile long stored would else be kept.
  __device__ void forget() {
    kv_stage = -1;
#pragma unroll
    for (int group = 0; group < kConfig.groups(); ++group) {
#pragma unroll
      for (uint4& run : runs[group]) {
        if constexpr (kConfig.kv_rows == KvRows::codes) {
          // Written, so that what a coded tile is stored with may have the registers until now.
          asm volatile("mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;"
                       : "=r"(run.x), "=r"(run.y), "=r"(run.z), "=r"(run.w));
        } else {
          asm volatile("" : "=r"(run.x), "=r"(run.y), "=r"(run.z), "=r"(run.w));
        }
      }
    }
  }
  template <typename Part>
  __device__ void store(const TileParams&, TileShared<kConfig>& shared, int row,
                        const float (&)[kConfig.tile_n / 2]) {
    if (kv_stage < 0) return;
    store_runs<kConfig, Part>(shared, kv_stage, row, [&](int group, uint4(&out)[2]) {
      out[0] = runs[group][0], out[1] = runs[group][1];
    });
    if constexpr (Part::kIsLast) kv_stage = -1;
  }
};

// A finished tile of f32 products. Stored as 16-bit numbers it waits as others do; as f32 half of it fits the same
// registers, and the other half is stored at once.

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
    this->kv_stage = now;
  }
  template <typename Part>
  __device__ void store(const TileParams& params, TileShared<kConfig>& shared, int row,
                        const float (&sums)[kConfig.tile_n / 2]) {
    if (this->kv_stage < 0) return;
    if (shared.routes[this->kv_stage].dtype != DType::f32) {
      return Stored16Bit::template store<Part>(params, shared, row, sums);
    }
    store_runs<kConfig, DeferredHalf<Part>, F32Run>(
        shared, this->kv_stage, row, [&](int group, F32Run(&out)[2]) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            out[half] = share_with_neighbour({this->runs[2 * (group - kAtOnce)][half],
                                              this->runs[2 * (group - kAtOnce) + 1][half]});
          }
        });
    if constexpr (Part::kIsLast) this->kv_stage = -1;
  }
};

template <TileConfig kConfig>
using FinishedTile =
    std::conditional_t<kConfig.dtype == DType::f32, F32Epilogue<kConfig>, DeferredStore<kConfig>>;

}  // namespace quire::cuda
