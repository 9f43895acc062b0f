// SPDX-License-Identifier: Apache-2.0
// K and V of one head for many rows.
//
//   warp 0            load      the weights once, rows into the ring
//   warps 1 – 3       rotate    q's rope columns, if asked to
//   warpgroups 1, 2   multiply  64 rows × K, or × V, at a time, and store
#pragma once

#include "cuda/common/mma/warp_mma.cuh"
#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_prefill/project.h"
#include "cuda/sm90/mla_prefill/rotate_queries.cuh"

namespace quire::cuda::sm90::mla_prefill {

// Which rows a CTA projects, 64 at a time.
struct StationaryRows {
  int head;
  int first;  // rows from here
  int end;    // to here
  int steps;

  static constexpr int kTogether = 2;  // steps: one that is left over is multiplied twice

  __device__ explicit StationaryRows(const StationaryParams& params) {
    const int live = min(max(*params.live_rows, 0), params.rows);
    const int all_steps = (live + kWgmmaRows - 1) / kWgmmaRows;
    const int share = (all_steps + params.splits - 1) / params.splits;
    head = static_cast<int>(blockIdx.x) % params.heads;
    first = static_cast<int>(blockIdx.x) / params.heads * share * kWgmmaRows;
    end = min(live, first + share * kWgmmaRows);
    steps = max(0, (end - first + kWgmmaRows - 1) / kWgmmaRows);
    skew_ = steps > 0 ? static_cast<int>(std::int64_t{head} * steps / params.heads) : 0;
  }
  // Blocks begin at different rows: heads stand a power of two apart, and those that write at the
  // same distance from their beginnings meet in the same channels of memory.
  __device__ int row_of(int step) const {
    const int turned = step + skew_;
    return first + (turned < steps ? turned : turned - steps) * kWgmmaRows;
  }

 private:
  int skew_;
};

// Shared memory of the weight-stationary projection.
struct StationaryShared {
  static constexpr int kColumns = 256;       // a head's K and V
  static constexpr int kParts = 2;           // that are multiplied apart: K, V; a warpgroup each
  static constexpr int kSwizzleColumns = 2;  // of 64 columns of 16 bits, of a part that is stored
  static constexpr int kSlots = 8;           // of 64 rows × 128 latents
  static constexpr int kWarps = 4;           // of a part
  static constexpr int kStoredRows = kWgmmaRows / kWarps;

  alignas(1024) std::byte weight[StationaryParams::kBlocks][kColumns * kRowBytes];
  alignas(1024) std::byte x[kSlots][kWgmmaRows * kRowBytes];
  alignas(1024) std::byte staged[kParts][kWarps][kSwizzleColumns][kStoredRows * kRowBytes];
  RingBarriers<kSlots> ring;
  StationaryRows rows;  // here, because consumers have no registers to spare for it
  alignas(16) float weight_scales[kParts][StationaryParams::kBlocks];

  __device__ void init() { ring.init(1, kParts); }
};

// One thread loads: the head's weights once, then rows for as long as there are.
__device__ inline void load_weights(const StationaryParams& params, StationaryShared& shared,
                                    int head, int block) {
  load_box({.map = &params.weight,
            .shared = shared.weight[block],
            .full = &shared.ring.full[block],
            .hint = L2Hint::EVICT_FIRST},
           block * kRowBytes, head * StationaryShared::kColumns);
}

__device__ inline void load_block(const StationaryParams& params, StationaryShared& shared, int row,
                                  int block, int slot) {
  load_box({.map = &params.x,
            .shared = shared.x[slot],
            .full = &shared.ring.full[slot],
            .hint = L2Hint::EVICT_LAST},
           block * kRowBytes, row);
}

// The first rows' blocks, each on one barrier with the weights that it is multiplied by: nobody asks
// for those again. The weights are an argument of the call: the first of them come while the rows are
// still being gathered, the others behind the first rows, which would else wait for all of them.
__device__ inline void load_first(const StationaryParams& params, StationaryShared& shared,
                                  const StationaryRows& rows) {
  constexpr int kBlocks = StationaryParams::kBlocks;
  for (int block = 0; block < kBlocks; ++block) {
    shared.ring.full[block].arrive_and_expect_tx(sizeof(shared.x[0]) + sizeof(shared.weight[0]));
  }
  load_weights(params, shared, rows.head, 0);
  cudaGridDependencySynchronize();
  for (int block = 0; block < kBlocks; ++block) {
    load_block(params, shared, rows.row_of(0), block, block);
  }
  for (int block = 1; block < kBlocks; ++block) load_weights(params, shared, rows.head, block);
}

__device__ inline void load_rows(const StationaryParams& params, StationaryShared& shared,
                                 const StationaryRows& rows) {
  constexpr int kBlocks = StationaryParams::kBlocks;
  constexpr int kTogether = StationaryRows::kTogether;
  if (rows.steps == 0) {
    cudaGridDependencySynchronize();
    return;
  }
  load_first(params, shared, rows);
  RingPosition<StationaryShared::kSlots> at{.stage = kBlocks};
  const int steps = (rows.steps + kTogether - 1) / kTogether * kTogether;
  for (int step = 1; step < steps; ++step) {
    const int row = rows.row_of(min(step, rows.steps - 1));
    for (int block = 0; block < kBlocks; ++block, at.advance()) {
      shared.ring.wait_empty(at);
      shared.ring.full[at.stage].arrive_and_expect_tx(sizeof(shared.x[0]));
      load_block(params, shared, row, block, at.stage);
    }
  }
}

// A consumer warpgroup: 64 rows × 128 columns, a head's K or its V, step after step. Products of a
// block of 128 latents go into one of two sets of registers: while they run, those of the block
// before are scaled and added, or the step before is stored.

// kStored: of what is stored, numbers of 16 bits or e4m3.
template <DType kStored> class StationaryConsumer {
 public:
  // part: 0 for K, 1 for V.
  __device__ StationaryConsumer(const StationaryParams& params, StationaryShared& shared, int part)
      : params_(params), shared_(shared), part_(part), staged_(first_staged()) {}

  __device__ void run() {
    cudaGridDependencySynchronize();
    if (shared_.rows.steps == 0) return;
    run<StationaryRows::kTogether>();
    if (cute::elect_one_sync()) await_store();
  }

 private:
  static constexpr int kColumns = StationaryShared::kColumns / StationaryShared::kParts;
  static constexpr bool kIsWide = kStored != DType::fp8_e4m3;
  static constexpr int kSwizzleColumns = kIsWide ? StationaryShared::kSwizzleColumns : 1;
  static constexpr int kSwizzleColumnWidth = kColumns / kSwizzleColumns;
  static constexpr int kRegisters = kColumns / 2;
  using Op = Wgmma<DType::fp8_e4m3, kColumns>;
  using Products = float[kRegisters];

  // The thread's first of the 64; the second is 8 below.
  __device__ static int row_in_step() {
    return static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  }

  // Of the thread's two rows; those past the end use the last one's, and are not stored.
  __device__ void load_scales(int step) {
    const int row = shared_.rows.row_of(min(step, shared_.rows.steps - 1)) + row_in_step();
    const auto* scales = reinterpret_cast<const float4*>(params_.x_scales);
    coming_[0] = __ldg(scales + min(row, params_.rows - 1));
    coming_[1] = __ldg(scales + min(row + 8, params_.rows - 1));
  }
  // With those of the weights.
  __device__ void take_scales() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scales_[0][i] = coming_[i].x;
      scales_[1][i] = coming_[i].y;
      scales_[2][i] = coming_[i].z;
      scales_[3][i] = coming_[i].w;
    }
  }

  // kSteps at a time. From one to the next products go on without a gap, which the compiler allows
  // in a straight line only: they may not be running where a loop turns back. The last of them is
  // stored under the next ones' products, if it is one.
  template <int kSteps> __device__ void run() {
    static_assert(kSteps % StationaryRows::kTogether == 0);
    const int steps = shared_.rows.steps;
    load_scales(0);
    of_weight_ = shared_.weight_scales[part_][0];
    for (int step = 0; step < steps; step += kSteps) {
      issue<0>(even_);
      issue<1>(odd_);
      if (step > 0) store(step - 1);
#pragma unroll
      for (int i = 0; i < kSteps - 1; ++i) {
        add_but_last(step + i + 1);
        issue<0>(even_);  // of the next step
        add<3, 1>(odd_);
        issue<1>(odd_);
        store(step + i);
      }
      add_but_last(step + kSteps);
      add<3, 0>(odd_);
    }
    if (steps % kSteps == 0) store(steps - 1);
  }
  // Blocks 0 and 1 of a step run already. `next`: the step whose scales are to come.
  __device__ void add_but_last(int next) {
    static_assert(StationaryParams::kBlocks == 4);
    take_scales();
    add<0, 1>(even_);
    issue<2>(even_);
    add<1, 1>(odd_);
    issue<3>(odd_);
    load_scales(next);  // where two of the blocks' are done with
    add<2, 1>(even_);
  }

  template <int kBlock> __device__ void issue(Products& products) {
    shared_.ring.wait_full(issued_);
    pin(products);
    cute::warpgroup_arrive();
    multiply_rows<Op>(tile_descriptor(shared_.x[issued_.stage]),
                      tile_descriptor(shared_.weight[kBlock]) + part_ * (kColumns * kRowBytes >> 4),
                      products, true);
    cute::warpgroup_commit_batch();
    issued_.advance();
  }

  // The products of a block, with kLater blocks' behind them.
  template <int kBlock, int kLater> __device__ void add(Products& products) {
    cute::warpgroup_wait<kLater>();
    pin(products);
    if (leads()) shared_.ring.empty[added_.stage].arrive();
    added_.advance();
    const float factors[2] = {scales_[kBlock][0] * of_weight_, scales_[kBlock][1] * of_weight_};
    of_weight_ = shared_.weight_scales[part_][(kBlock + 1) % StationaryParams::kBlocks];
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      const float factor = factors[i % 4 / 2];
      sums_[i] = kBlock == 0 ? factor * products[i] : fmaf(factor, products[i], sums_[i]);
    }
  }

  // By way of shared memory, swizzle columns of 128 bytes, from where TMA takes them: each warp its
  // own 16 rows, so that none waits for another. Rows behind the buffer's end lie outside the map.
  __device__ void store(int step) {
    if (cute::elect_one_sync()) await_store();  // the step before has been read
    __syncwarp();
    if constexpr (kIsWide) {
      stage();
    } else {
      stage_codes();
    }
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    if (!cute::elect_one_sync()) return;
    const auto warp = static_cast<int>(threadIdx.x % 128 / 32);
    cute::SM90_TMA_STORE_4D::copy(&params_.y, shared_.staged[part_][warp], 0,
                                  shared_.rows.row_of(step) + warp * StationaryShared::kStoredRows,
                                  part_ * kSwizzleColumns, shared_.rows.head);
  }
  // Stores become a group only now: right behind them that waits until they have begun.
  __device__ static void await_store() {
    cute::tma_store_arrive();
    cute::tma_store_wait<0>();
  }

  // Where the thread's first numbers go: those of group g of 8 columns go to what bits of g are turned
  // in. Matrices of 8 × 8 of 16 bits: the row that the lane names, of the first or second of two
  // groups. Codes: the lane's own two columns.
  __device__ std::uint32_t first_staged() const {
    const auto lane = static_cast<std::uint32_t>(threadIdx.x % 32);
    const std::uint32_t row = kIsWide ? lane % 16 : lane / 4;
    const std::uint32_t chunk = kIsWide ? lane / 16 : 0;
    const std::uint32_t byte = kIsWide ? 0 : lane % 4 * 2;
    return cute::cast_smem_ptr_to_uint(shared_.staged[part_][threadIdx.x % 128 / 32]) +
           row * kRowBytes + (chunk ^ (row % 8)) * 16 + byte;
  }
  // Four matrices an instruction: 16 rows of the warp, two groups of 8 columns.
  __device__ void stage() const {
    const auto first = static_cast<std::uint32_t>(opaque(static_cast<int>(staged_)));
#pragma unroll
    for (int group = 0; group < kColumns / 8; group += 2) {
      const int swizzle_column = group * 8 / kSwizzleColumnWidth;
      const float* sums = &sums_[4 * group];
      store_matrices(
          (first ^ (group % 8 * 16)) + swizzle_column * (StationaryShared::kStoredRows * kRowBytes),
          make_uint4(pack(sums[0], sums[1]), pack(sums[2], sums[3]), pack(sums[4], sums[5]),
                     pack(sums[6], sums[7])));
    }
  }
  // Two columns a store: eight rows of a warp's hit different banks.
  __device__ void stage_codes() const {
    const auto first = static_cast<std::uint32_t>(opaque(static_cast<int>(staged_)));
#pragma unroll
    for (int group = 0; group < kColumns / 8; ++group) {
      const std::uint32_t to = (first ^ (group / 2 * 16)) + group % 2 * 8;
      const float* sums = &sums_[4 * group];
      store_pair(to, pack_codes(sums[0], sums[1]));
      store_pair(to + 8 * kRowBytes, pack_codes(sums[2], sums[3]));
    }
  }
  __device__ static void store_pair(std::uint32_t to, std::uint16_t pair) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(pair) : "memory");
  }
  __device__ static std::uint16_t pack_codes(float low, float high) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
  }
  __device__ static std::uint32_t pack(float low, float high) {
    return kStored == DType::bf16 ? pack_bf16(low, high) : pack_f16(low, high);
  }
  __device__ static bool leads() {
    return threadIdx.x % 128 == 0;
  }

  const StationaryParams& params_;
  StationaryShared& shared_;
  const int part_;
  const std::uint32_t staged_;
  RingPosition<StationaryShared::kSlots> issued_;
  RingPosition<StationaryShared::kSlots> added_;
  float scales_[StationaryParams::kBlocks][2];  // of the two rows
  float of_weight_;   // of the next block to be added: asked for a block ahead
  float4 coming_[2];  // the next step's
  Products even_;
  Products odd_;
  Products sums_;
};

inline constexpr int kStationaryThreads = 128 * (1 + StationaryShared::kParts);

__device__ inline void begin_stationary(const StationaryParams& params, StationaryShared& shared,
                                        const StationaryRows& rows) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    prefetch(params.x);
    prefetch(params.weight);
    prefetch(params.y);
    shared.init();
    shared.rows = rows;
    cutlass::arch::fence_barrier_init();
  }
  const int block = thread / 2;
  if (block < StationaryParams::kBlocks) {
    const std::int64_t row = 2 * rows.head + thread % 2;
    shared.weight_scales[thread % 2][block] =
        __ldg(params.weight_scales + row * params.weight_scale_strides[0] +
              block * params.weight_scale_strides[1]);
  }
  __syncthreads();
}

// By a warp of the first warpgroup.
template <DType kDType>
__device__ void load_or_rotate(const StationaryParams& params, StationaryShared& shared,
                               const StationaryRows& rows) {
  constexpr int kRotators = 3;  // warps
  const int warp = warp_in_block();
  if (warp == 0) {
    if (cute::elect_one_sync()) load_rows(params, shared, rows);
  } else if (params.rotation.q != nullptr) {
    QueryRotator<kDType>(params.rotation, static_cast<int>(blockIdx.x) * kRotators + warp - 1,
                         static_cast<int>(gridDim.x) * kRotators)
        .run();
  }
}

template <DType kDType, DType kStored>
__global__ void __launch_bounds__(kStationaryThreads, 1)
    stationary_kernel(const __grid_constant__ StationaryParams params) {
  constexpr int kProducerRegisters = 72;
  constexpr int kConsumerRegisters = 216;
  cudaTriggerProgrammaticLaunchCompletion();
  const StationaryRows rows(params);
  if (rows.steps == 0 && params.rotation.q == nullptr) {
    cudaGridDependencySynchronize();  // who waits for this kernel means those before it too
    return;
  }
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<StationaryShared*>(memory);
  begin_stationary(params, shared, rows);
  const int warpgroup = warpgroup_in_block();
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
    load_or_rotate<kDType>(params, shared, rows);
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters>();
    StationaryConsumer<kStored>(params, shared, warpgroup - 1).run();
  }
}

template <DType kDType, DType kStored>
void launch_stationary(const StationaryParams& params, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.heads * params.splits)),
                          .block = dim3(kStationaryThreads),
                          .shared_bytes = sizeof(StationaryShared),
                          .overlaps_previous = true};
  launch(stationary_kernel<kDType, kStored>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::mla_prefill
