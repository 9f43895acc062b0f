// SPDX-License-Identifier: Apache-2.0
// The end of an item: weights of all keys, LSE, sums to the output or to pieces that are merged later.
#pragma once

#include "cuda/hopper/sparse_mla/fp8/column_softmax.cuh"
#include "cuda/hopper/sparse_mla/fp8/tile_sums.cuh"
#include "cuda/hopper/sparse_mla/params.h"
#include "cuda/hopper/sparse_mla/row_softmax.cuh"

namespace quire::cuda::hopper {

template <typename Variant> class ItemFinish {
 public:
  using Sums = ValueSums<Variant>;
  using Softmax = ColumnSoftmax<Variant>;

  __device__ ItemFinish(const SparseParams& params, Fp8Shared<Variant>& shared,
                        const ItemNote& item, int warpgroup)
      : params_(params), shared_(shared), item_(item), warpgroup_(warpgroup) {}

  // By both warpgroups together; the queries are not needed any more.
  __device__ void run(const Softmax& softmax, Sums& sums) {
    tell(softmax);
    sync();
    if (static_cast<int>(threadIdx.x) < kConfig.heads) {
      finish_head(static_cast<int>(threadIdx.x));
    }
    sync();
    apply_factors(sums);
    exchange<0>(sums);
    exchange<1>(sums);
  }

 private:
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kHalf = Sums::kBlocks / 2;

  __device__ static void sync() {
    cutlass::arch::NamedBarrier::sync(Fp8Config::kAttenders, kFp8Attenders);
  }
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x / 32 % Fp8Config::kWarps); }

  __device__ void tell(const Softmax& softmax) {
#pragma unroll
    for (int c = 0; c < Softmax::kColumns; ++c) {
      float total = softmax.total[c];
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) total += __shfl_xor_sync(0xffffffff, total, mask);
      if (lane() < 4) shared_.tops[warpgroup_][warp()][Softmax::head_of(c)] = total;
    }
  }

  __device__ float total_of(int warpgroup, int head) const {
    const auto& parts = shared_.tops[warpgroup];
    return (parts[0][head] + parts[1][head]) + (parts[2][head] + parts[3][head]);
  }

  __device__ float base_of(int warpgroup, int head) const {
    const float base = shared_.bases[warpgroup][head];
    return base == Softmax::kNoBase ? -INFINITY : base;
  }

  __device__ void finish_head(int block_head) {
    const float bases[2] = {base_of(0, block_head), base_of(1, block_head)};
    const float base = fmaxf(bases[0], bases[1]);
    float weights[2];
    float total = 0.0F;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float part = total_of(i, block_head);
      // Keys whose scores are NaN have a total and no base.
      weights[i] = bases[i] != -INFINITY ? exp2f(bases[i] - base) : part == 0.0F ? 0.0F : 1.0F;
      total += part * weights[i];
    }
    const float factor = finish(block_head, base, total);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      shared_.factors[i][block_head] = weights[i] == 0.0F ? 0.0F : factor * weights[i];
    }
  }
  // The head's LSE, or what the merge has to know of it; the factor of its sums.
  __device__ float finish(int block_head, float base, float total) const {
    const int head = item_.first_head + block_head;
    if (head >= params_.work.heads) return 0.0F;
    if (params_.work.pieces > 1) {
      params_.pieces.stats[line(block_head)] = {base, total};
      return base == -INFINITY && total == 0.0F ? 0.0F : 1.0F;
    }
    const AttendOutput& output = params_.output;
    const SparseFinish finish = finish_row(base, total, output.sinks, head);
    if (output.lse != nullptr) {
      output.lse[item_.token * output.lse_token_stride + head * output.lse_head_stride] =
          finish.lse;
    }
    return finish.factor;
  }

  // Factor 0: zeros, whatever the sums are.
  __device__ void apply_factors(Sums& sums) const {
    float factors[Softmax::kColumns];
#pragma unroll
    for (int c = 0; c < Softmax::kColumns; ++c) {
      factors[c] = shared_.factors[warpgroup_][Softmax::head_of(c)];
    }
#pragma unroll
    for (int block = 0; block < Sums::kBlocks; ++block) {
#pragma unroll
      for (int k = 0; k < Sums::kSums; ++k) {
        float& sum = sums.values[block][k];
        const float factor = factors[k / 4 * 2 + k % 2];
        sum = factor == 0.0F ? 0.0F : sum * factor;
      }
    }
  }

  // Each warpgroup gives one half of its sums to the other, thread by thread, and stores the other.
  template <int kReceiver> __device__ void exchange(Sums& sums) {
    constexpr int kFirst = kReceiver * kHalf;
    constexpr int kParts = Sums::kSums / 4;
    auto* place = reinterpret_cast<float4*>(shared_.q) + threadIdx.x % Fp8Config::kWarpgroup;
    static_assert(kHalf * kParts * Fp8Config::kWarpgroup * sizeof(float4) <= sizeof(shared_.q));
    if (warpgroup_ != kReceiver) {
#pragma unroll
      for (int i = 0; i < kHalf * kParts; ++i) {
        const float* from = &sums.values[kFirst + i / kParts][i % kParts * 4];
        place[i * Fp8Config::kWarpgroup] = {from[0], from[1], from[2], from[3]};
      }
    }
    sync();
    if (warpgroup_ == kReceiver) {
#pragma unroll
      for (int i = 0; i < kHalf * kParts; ++i) {
        const float4 got = place[i * Fp8Config::kWarpgroup];
        float* to = &sums.values[kFirst + i / kParts][i % kParts * 4];
        to[0] += got.x, to[1] += got.y, to[2] += got.z, to[3] += got.w;
      }
#pragma unroll
      for (int block = kFirst; block < kFirst + kHalf; ++block) store(sums, block);
    }
    sync();
  }

  __device__ std::int64_t line(int block_head) const {
    return std::int64_t{item_.index} * SparseConfig::kHeads + block_head;
  }

  // A thread has two neighbouring columns of each of its heads; eight threads have 16.
  __device__ void store(const Sums& sums, int block) const {
    const int column = block / 2 * 128 + warp() * 32 + block % 2 * 16 + lane() / 4 * 2;
#pragma unroll
    for (int c = 0; c < Softmax::kColumns; ++c) {
      const int block_head = Softmax::head_of(c);
      if (item_.first_head + block_head >= params_.work.heads) continue;
      const float* pair = &sums.values[block][c / 2 * 4 + c % 2];
      store_pair(block_head, column, pair[0], pair[2]);
    }
  }
  __device__ void store_pair(int block_head, int column, float even, float odd) const {
    if (params_.work.pieces > 1) {
      float* row = params_.pieces.sums + line(block_head) * SparseConfig::kLatent;
      *reinterpret_cast<float2*>(row + column) = {even, odd};
      return;
    }
    const AttendOutput& output = params_.output;
    std::byte* row = output.out + item_.token * output.token_bytes +
                     std::int64_t{item_.first_head + block_head} * output.head_bytes;
    if (output.dtype == DType::f32) {
      *reinterpret_cast<float2*>(row + column * 4) = {even, odd};
    } else {
      *reinterpret_cast<std::uint32_t*>(row + column * 2) = output.dtype == DType::bf16
                                                                ? pack_pair<DType::bf16>(even, odd)
                                                                : pack_pair<DType::f16>(even, odd);
    }
  }

  const SparseParams& params_;
  Fp8Shared<Variant>& shared_;
  const ItemNote& item_;
  int warpgroup_;
};

}  // namespace quire::cuda::hopper
