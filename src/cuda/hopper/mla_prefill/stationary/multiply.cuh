// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: every other 64 rows × 256 columns, half of them at a time. While one scales,
// adds or stores, the other's products run: they find the tensor cores free by themselves (given
// turns, as in promoted_sums.cuh, they are a fifth slower: who stores holds the other up).
#pragma once

#include "cuda/hopper/mla_prefill/stationary/rows.cuh"
#include "cuda/tile/store_run.cuh"

namespace quire::cuda::hopper {

template <DType kDType> class StationaryConsumer {
 public:
  __device__ StationaryConsumer(const StationaryParams& params, StationaryShared& shared,
                                const StationaryRows& rows, int consumer)
      : params_(params), shared_(shared), rows_(rows), consumer_(consumer) {
    const int thread = static_cast<int>(threadIdx.x % 128);
    row_ = thread / 32 * 16 + thread % 32 / 4;
    y_ = params.y + rows.head * params.y_head_bytes + thread % 4 * (kRun * kBytes);
  }

  __device__ void run() {
    cudaGridDependencySynchronize();
    load_scales(consumer_);
    if (consumer_ == 1) skip_step();
    for (int step = consumer_; step < rows_.steps; step += 2) {
      multiply_step(step);
      skip_step();
      skip_step();
    }
  }

 private:
  static constexpr int kBytes = bits(kDType) / 8;
  static constexpr int kRowStride = StationaryShared::kColumns * kBytes;
  static constexpr int kRun = 8;                                    // columns of a store
  static constexpr int kPartColumns = StationaryShared::kColumns / 2;
  static constexpr int kRegisters = kPartColumns / 2;               // of a part
  static constexpr int kBlocks = StationaryParams::kMostBlocks;
  using Op = Wgmma<DType::fp8_e4m3, kPartColumns>;

  __device__ void skip_step() {
    at_.stage += params_.k_blocks;
    if (at_.stage >= StationaryShared::kSlots) {
      at_.stage -= StationaryShared::kSlots;
      at_.phase ^= 1;
    }
  }

  // Of the thread's two rows; those past the end use the last one's, and are not stored.
  __device__ void load_scales(int step) {
    const int row = rows_.row_of(step) + row_;
    const auto* scales = reinterpret_cast<const float4*>(params_.x_scales);
    low_ = __ldg(scales + min(row, params_.rows - 1));
    high_ = __ldg(scales + min(row + 8, params_.rows - 1));
  }
  template <int kBlock> __device__ static float of_block(const float4& scales) {
    return kBlock == 0 ? scales.x : kBlock == 1 ? scales.y : kBlock == 2 ? scales.z : scales.w;
  }

  template <int kPart> __device__ void multiply_part(const std::byte* x, const std::byte* weight) {
    pin(products_);
    cute::warpgroup_arrive();
    multiply_rows<Op>(tile_descriptor(x),
                      tile_descriptor(weight) + kPart * (kPartColumns * kRowBytes >> 4), products_,
                      true);
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
  }

  template <int kBlock, int kPart> __device__ void add_part(const float (&factors)[2]) {
    pin(products_);
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      const float scaled = factors[i % 4 / 2] * products_[i];
      float& sum = sums_[kPart * kRegisters + i];
      sum = kBlock == 0 ? scaled : fmaf(factors[i % 4 / 2], products_[i], sum);
    }
  }

  template <int kBlock> __device__ void multiply_block(int step) {
    if (kBlock >= params_.k_blocks) return;
    const int stage = at_.stage + kBlock;
    const bool wraps = stage >= StationaryShared::kSlots;
    const RingPosition<StationaryShared::kSlots> at{
        .stage = wraps ? stage - StationaryShared::kSlots : stage,
        .phase = at_.phase ^ (wraps ? 1U : 0U)};
    const float low = of_block<kBlock>(low_);
    const float high = of_block<kBlock>(high_);
    shared_.ring.wait_full(at);
    shared_.weight_full[kBlock].wait(0);
    multiply_part<0>(shared_.x[at.stage], shared_.weight[kBlock]);
    const float of_keys = shared_.weight_scales[kBlock][0];
    add_part<kBlock, 0>({low * of_keys, high * of_keys});
    const bool is_last = kBlock == params_.k_blocks - 1;
    if (is_last) store_part<0>(step);
    const float of_values = shared_.weight_scales[kBlock][1];
    const float factors[2] = {low * of_values, high * of_values};
    if (is_last) load_scales(step + 2);
    multiply_part<1>(shared_.x[at.stage], shared_.weight[kBlock]);
    if (threadIdx.x % 128 == 0) shared_.ring.empty[at.stage].arrive();
    add_part<kBlock, 1>(factors);
    if (is_last) store_part<1>(step);
  }

  __device__ void multiply_step(int step) {
    multiply_block<0>(step);
    multiply_block<1>(step);
    multiply_block<2>(step);
    multiply_block<3>(step);
    static_assert(kBlocks == 4);
  }

  // In quad order (tile/row_order.h) a thread holds 8 neighbouring columns of every 32.
  template <int kPart> __device__ void store_part(int step) const {
    const int row = rows_.row_of(step) + row_;
    std::byte* to = y_ + std::int64_t{row} * kRowStride + kPart * (kPartColumns * kBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= rows_.end) continue;
#pragma unroll
      for (int group = 0; group < kRegisters / 16; ++group) {
        float run[kRun];
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
          run[i] = sums_[kPart * kRegisters + 16 * group + 4 * (i / 2) + 2 * half + i % 2];
        }
        store_run<kDType>(to + half * 8 * kRowStride + group * (32 * kBytes), run);
      }
    }
  }

  const StationaryParams& params_;
  StationaryShared& shared_;
  const StationaryRows& rows_;
  const int consumer_;
  int row_;       // of the 64, the thread's first; the second is 8 below
  std::byte* y_;  // the thread's first column of row 0
  RingPosition<StationaryShared::kSlots> at_;
  float4 low_;  // scales of the two rows
  float4 high_;
  float products_[kRegisters];
  float sums_[2 * kRegisters];
};

}  // namespace quire::cuda::hopper
