// SPDX-License-Identifier: Apache-2.0
// The end of an item: weights of all keys, LSE, and the sums.
#pragma once

#include "cuda/common/thread/quad_reduce.cuh"
#include "cuda/sm90/sparse_mla/fp8/column_softmax.cuh"
#include "cuda/sm90/sparse_mla/fp8/store_sums.cuh"
#include "cuda/sm90/sparse_mla/row_softmax.cuh"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant> class ItemFinish {
 public:
  using Sums = ValueSums<Variant>;
  using Softmax = ColumnSoftmax<Variant>;

  __device__ ItemFinish(const SparseParams& params, Fp8Shared<Variant>& shared,
                        const ItemNote& item, int warpgroup, Attenders& attenders)
      : params_(params),
        shared_(shared),
        item_(item),
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
    StoreSums<Variant>(params_, item_, shared_.q[0], warpgroup_, attenders_).run(sums);
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
    const int head = item_.first_head + block_head;
    if (head >= params_.work.heads) return 0.0F;
    if (item_.is_piece()) {
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

  __device__ std::int64_t line(int block_head) const {
    return std::int64_t{item_.piece} * SparseConfig::kHeads + block_head;
  }

  const SparseParams& params_;
  Fp8Shared<Variant>& shared_;
  const ItemNote& item_;
  int warpgroup_;
  Attenders& attenders_;
};

}  // namespace quire::cuda::sm90::sparse_mla
