// SPDX-License-Identifier: Apache-2.0
// The end of a work tile: weights of all keys, LSE, and the sums.
#pragma once

#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/sparse_mla/fp8/tile_sums.cuh"
#include "cuda/sm90/sparse_mla/params.h"
#include "cuda/sm90/sparse_mla/row_softmax.cuh"

namespace quire::cuda::sm90::sparse_mla {

// The finished sums of both warpgroups, added and stored: to the output, or to splits that are merged
// later. They pass through shared memory as rows of heads, one half of the columns at a time, so that
// few instructions store them: code that runs once is mostly waited for. (Stored from where the products
// leave them, 32 heads took 19 µs.)

template <typename Variant> class StoreSums {
 public:
  using Sums = ValueSums<Variant>;
  using Softmax = ColumnSoftmax<Variant>;

  // `place`: of kBytes. By both warpgroups.
  __device__ StoreSums(const SparseParams& params, const WorkTileInfo& work_tile, std::byte* place,
                       int warpgroup, Attenders& attenders)
      : params_(params),
        work_tile_(work_tile),
        place_(reinterpret_cast<float*>(place)),
        warpgroup_(warpgroup),
        attenders_(attenders) {}

  __device__ void run(const Sums& sums) {
    pass<0>(sums);
    pass<1>(sums);
  }

 private:
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kColumns = SparseConfig::kLatent / 2;  // of a half
  static constexpr int kBlocks = Sums::kBlocks / 2;
  // Four heads, two apart, begin in four groups of eight banks.
  static constexpr int kStride = kColumns + 4;
  static_assert(kConfig.heads * kStride * sizeof(float) <= sizeof(Fp8Shared<Variant>::q));

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  // One warpgroup leaves its sums of the half, the other adds its own, both store.
  template <int kHalf> __device__ void pass(const Sums& sums) {
    if (warpgroup_ != kHalf) put<kHalf>(sums, [](float2& at, float2 x) { at = x; });
    attenders_.sync();
    if (warpgroup_ == kHalf) {
      put<kHalf>(sums, [](float2& at, float2 x) { at = {at.x + x.x, at.y + x.y}; });
    }
    attenders_.sync();
    store(kHalf * kColumns);
    attenders_.sync();
  }

  // A thread has two neighbouring columns of each of its heads; eight threads have 16.
  template <int kHalf, typename Put> __device__ void put(const Sums& sums, const Put& into) const {
    const auto warp = static_cast<int>(threadIdx.x / 32 % Fp8Config::kWarps);
    float* first = place_ + Softmax::head_of(0) * kStride + warp * 32 + lane() / 4 * 2;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int c = 0; c < Softmax::kColumns; ++c) {
        const float* pair = &sums.values[kHalf * kBlocks + block][c / 2 * 4 + c % 2];
        const int offset = (c / 2 * 8 + c % 2) * kStride + block / 2 * 128 + block % 2 * 16;
        into(*reinterpret_cast<float2*>(first + offset), {pair[0], pair[2]});
      }
    }
  }

  // A warp has a head at a time.
  __device__ void store(int first_column) const {
    constexpr int kWarps = Fp8Config::kAttenders / 32;
    const int heads = min(kConfig.heads, params_.work.heads - work_tile_.first_head);
#pragma unroll 1
    for (int head = static_cast<int>(threadIdx.x) / 32; head < heads; head += kWarps) {
#pragma unroll
      for (int column = lane() * 4; column < kColumns; column += 128) {
        store_four(head, first_column + column,
                   *reinterpret_cast<const float4*>(place_ + head * kStride + column));
      }
    }
  }
  __device__ void store_four(int block_head, int column, const float4& x) const {
    if (work_tile_.is_split()) {
      const std::int64_t split_row =
          std::int64_t{work_tile_.split} * SparseConfig::kHeads + block_head;
      *reinterpret_cast<float4*>(params_.splits.sums + split_row * SparseConfig::kLatent + column) =
          x;
      return;
    }
    const AttendOutput& output = params_.output;
    std::byte* row = output.out + work_tile_.token * output.token_bytes +
                     std::int64_t{work_tile_.first_head + block_head} * output.head_bytes;
    if (output.dtype == DType::f32) {
      *reinterpret_cast<float4*>(row + column * 4) = x;
    } else if (output.dtype == DType::f16) {
      *reinterpret_cast<uint2*>(row + column * 2) = {pack_pair<DType::f16>(x.x, x.y),
                                                     pack_pair<DType::f16>(x.z, x.w)};
    } else {
      *reinterpret_cast<uint2*>(row + column * 2) = {pack_pair<DType::bf16>(x.x, x.y),
                                                     pack_pair<DType::bf16>(x.z, x.w)};
    }
  }

  const SparseParams& params_;
  const WorkTileInfo& work_tile_;
  float* place_;
  int warpgroup_;
  Attenders& attenders_;
};

template <typename Variant> class WorkTileFinish {
 public:
  using Sums = ValueSums<Variant>;
  using Softmax = ColumnSoftmax<Variant>;

  __device__ WorkTileFinish(const SparseParams& params, Fp8Shared<Variant>& shared,
                            const WorkTileInfo& work_tile, int warpgroup, Attenders& attenders)
      : params_(params),
        shared_(shared),
        work_tile_(work_tile),
        warpgroup_(warpgroup),
        attenders_(attenders) {}

  // By both warpgroups together; the queries are not needed any more.
  __device__ void run(const Softmax& softmax, Sums& sums) {
    tell(softmax);
    attenders_.sync();
    if (static_cast<int>(threadIdx.x) < kConfig.heads) {
      finish_head(static_cast<int>(threadIdx.x));
    }
    attenders_.sync();
    apply_factors(sums);
    StoreSums<Variant>(params_, work_tile_, shared_.q[0], warpgroup_, attenders_).run(sums);
  }

 private:
  static constexpr Fp8Config kConfig = Variant::kConfig;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x / 32 % Fp8Config::kWarps); }

  __device__ void tell(const Softmax& softmax) {
#pragma unroll
    for (int c = 0; c < Softmax::kColumns; ++c) {
      const float total = column_sum(softmax.total[c]);
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
    const int head = work_tile_.first_head + block_head;
    if (head >= params_.work.heads) return 0.0F;
    if (work_tile_.is_split()) {
      params_.splits.stats[split_row(block_head)] = {base, total};
      return base == -INFINITY && total == 0.0F ? 0.0F : 1.0F;
    }
    const AttendOutput& output = params_.output;
    const SparseFinish finish = finish_row(base, total, output.sinks, head);
    if (output.lse != nullptr) {
      output.lse[work_tile_.token * output.lse_token_stride + head * output.lse_head_stride] =
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

  __device__ std::int64_t split_row(int block_head) const {
    return std::int64_t{work_tile_.split} * SparseConfig::kHeads + block_head;
  }

  const SparseParams& params_;
  Fp8Shared<Variant>& shared_;
  const WorkTileInfo& work_tile_;
  int warpgroup_;
  Attenders& attenders_;
};

}  // namespace quire::cuda::sm90::sparse_mla
