// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 rows × 128 columns, a head's K or its V, of every third such piece. While
// one scales, adds or stores, the others' products run: they find the tensor cores free by
// themselves (given turns, as in promoted_sums.cuh, who stores holds the others up).
#pragma once

#include "cuda/hopper/mla_prefill/stationary/shared.cuh"
#include "cuda/tile/store_run.cuh"

namespace quire::cuda::hopper {

template <DType kDType> class StationaryConsumer {
 public:
  __device__ StationaryConsumer(const StationaryParams& params, StationaryShared& shared)
      : params_(params), shared_(shared) {}

  __device__ void run(int consumer) {
    cudaGridDependencySynchronize();
    load_scales(consumer / kParts, 0);
    skip_steps(consumer / kParts);
    const int pieces = kParts * shared_.rows.steps;
    for (int piece = consumer; piece < pieces; piece += StationaryShared::kConsumers) {
      const int next = (piece + StationaryShared::kConsumers) / kParts;
      multiply_block<0>(piece, next);
      multiply_block<1>(piece, next);
      multiply_block<2>(piece, next);
      multiply_block<3>(piece, next);
      static_assert(StationaryParams::kMostBlocks == 4);
      skip_steps(next - piece / kParts);
      store(piece);
    }
  }

 private:
  static constexpr int kBytes = bits(kDType) / 8;
  static constexpr int kParts = StationaryShared::kParts;
  static constexpr int kColumns = StationaryShared::kColumns / kParts;
  static constexpr int kRowStride = StationaryShared::kColumns * kBytes;
  static constexpr int kRun = 8;  // columns of a store
  static constexpr int kRegisters = kColumns / 2;
  using Op = Wgmma<DType::fp8_e4m3, kColumns>;

  // The thread's first of the 64; the second is 8 below.
  __device__ static int row_in_step() {
    return static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  }
  __device__ void skip_steps(int steps) {
    at_.stage += steps * params_.k_blocks;
    if (at_.stage >= StationaryShared::kSlots) {
      at_.stage -= StationaryShared::kSlots;
      at_.phase ^= 1;
    }
    static_assert(2 * StationaryParams::kMostBlocks <= StationaryShared::kSlots);
  }
  // Of a block of the step that begins at at_.
  __device__ RingPosition<StationaryShared::kSlots> position(int block) const {
    const int stage = at_.stage + block;
    const bool wraps = stage >= StationaryShared::kSlots;
    return {.stage = wraps ? stage - StationaryShared::kSlots : stage,
            .phase = at_.phase ^ (wraps ? 1U : 0U)};
  }

  // Of the thread's two rows; those past the end use the last one's, and are not stored.
  __device__ void load_scales(int step, int block) {
    const int row = shared_.rows.row_of(step) + row_in_step();
    const float* scales = params_.x_scales + block;
    scales_[0] = __ldg(scales + StationaryParams::kMostBlocks * min(row, params_.rows - 1));
    scales_[1] = __ldg(scales + StationaryParams::kMostBlocks * min(row + 8, params_.rows - 1));
  }

  // The next block's scales are on their way while this one's products run.
  template <int kBlock> __device__ void multiply_block(int piece, int next_step) {
    if (kBlock >= params_.k_blocks) return;
    const int part = piece % kParts;
    const RingPosition<StationaryShared::kSlots> at = position(kBlock);
    const float of_weight = shared_.weight_scales[kBlock][part];
    const float factors[2] = {scales_[0] * of_weight, scales_[1] * of_weight};
    const bool is_last = kBlock == params_.k_blocks - 1;
    load_scales(is_last ? next_step : piece / kParts, is_last ? 0 : kBlock + 1);
    shared_.weight_full[kBlock].wait(0);
    shared_.ring.wait_full(at);
    pin(products_);
    cute::warpgroup_arrive();
    multiply_rows<Op>(tile_descriptor(shared_.x[at.stage]),
                      tile_descriptor(shared_.weight[kBlock]) + part * (kColumns * kRowBytes >> 4),
                      products_, true);
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    if (threadIdx.x % 128 == 0) shared_.ring.empty[at.stage].arrive();
    pin(products_);
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      const float factor = factors[i % 4 / 2];
      sums_[i] = kBlock == 0 ? factor * products_[i] : fmaf(factor, products_[i], sums_[i]);
    }
  }

  // In quad order (tile/row_order.h) a thread holds 8 neighbouring columns of every 32.
  __device__ void store(int piece) const {
    const int row = shared_.rows.row_of(piece / kParts) + row_in_step();
    const int column = piece % kParts * kColumns + static_cast<int>(threadIdx.x % 4) * kRun;
    std::byte* to = params_.y + shared_.rows.head * params_.y_head_bytes +
                    std::int64_t{row} * kRowStride + column * kBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= shared_.rows.end) continue;
#pragma unroll
      for (int group = 0; group < kRegisters / 16; ++group) {
        float run[kRun];
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
          run[i] = sums_[16 * group + 4 * (i / 2) + 2 * half + i % 2];
        }
        store_run<kDType>(to + half * 8 * kRowStride + group * (32 * kBytes), run);
      }
    }
  }

  const StationaryParams& params_;
  StationaryShared& shared_;
  RingPosition<StationaryShared::kSlots> at_;
  float scales_[2];  // of the two rows, for the next block
  float products_[kRegisters];
  float sums_[kRegisters];
};

}  // namespace quire::cuda::hopper
