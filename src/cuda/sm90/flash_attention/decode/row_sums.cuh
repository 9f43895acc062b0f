// SPDX-License-Identifier: Apache-2.0
// A warp's running softmax over its keys: 16 rows at most, all columns of V. The sums are transposed
// (columns of V × rows), so that 8 rows fill a product: scores as the first product leaves them are
// then operands of the second.
#pragma once

#include "cuda/common/mma/fragments.cuh"
#include "cuda/common/thread/quad_reduce.cuh"
#include "cuda/sm90/flash_attention/decode/shared.cuh"
#include "cuda/sm90/flash_attention/decode/store_rows.cuh"

namespace quire::cuda::sm90::flash_attention {

// Of 16 rows × 16 keys: rows lane / 4 + 8 · (i / 2), keys 8n + 2 · (lane % 4) + i % 2.
struct ScoreTile {
  float at[2][4];
};

template <DecodeConfig kConfig> struct RowSums {
  static constexpr int kHalves = kConfig.halves();
  static constexpr int kGroups = kConfig.dims() / 16;
  using Product = WarpProduct<kConfig.dtype>;

  float max[kHalves];
  float sum[kHalves];  // of this lane's keys alone, until an item ends
  // [i]: column lane / 4 + 8 · (i / 2) of the group (value_column), row 2 · (lane % 4) + i % 2.
  float values[kGroups][kHalves][4];

  __device__ void clear() {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      max[half] = kNoKey;
      sum[half] = 0.0F;
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4 * kHalves; ++i) values[group][i / 4][i % 4] = 0.0F;
    }
  }

  // Scores in powers of two become weights, B operands [16 keys × 8 rows]; the sums so far follow the
  // new maximum.
  __device__ void weigh(const ScoreTile& scores, std::uint32_t (&weights)[kHalves][2]) {
    float change[kHalves];
    bool has_changed = false;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const auto score = [&](int n, int i) { return scores.at[n][2 * half + i]; };
      const float top =
          fmaxf(max[half],
                quad_max(fmaxf(fmaxf(score(0, 0), score(0, 1)), fmaxf(score(1, 0), score(1, 1)))));
      const float base = top == kNoKey ? 0.0F : top;
      change[half] = exp2_approx(max[half] - base);
      has_changed |= top > max[half];
      max[half] = top;
      const float w00 = exp2_approx(score(0, 0) - base), w01 = exp2_approx(score(0, 1) - base);
      const float w10 = exp2_approx(score(1, 0) - base), w11 = exp2_approx(score(1, 1) - base);
      sum[half] = sum[half] * change[half] + ((w00 + w01) + (w10 + w11));
      weights[half][0] = Product::pack(w00, w01);
      weights[half][1] = Product::pack(w10, w11);
    }
    if (__any_sync(0xffffffff, has_changed)) rescale(change);
  }

  // values += Vᵀ [dims × 16 keys] · weights
  __device__ void add(const std::uint32_t (&weights)[kHalves][2], const std::byte* v) {
#pragma unroll
    for (int step = 0; step < kGroups / 2; ++step) {
      std::uint32_t operands[2][4];
      load_value_operands<kConfig.dtype>(v, DecodeConfig::kKeys * 128, step, operands);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          Product::add(values[2 * step + k][half], operands[k], weights[half][0], weights[half][1]);
        }
      }
    }
  }

 private:
  // A row's change is known to the quad that holds its scores; its sums lie elsewhere.
  __device__ void rescale(const float (&change)[kHalves]) {
    const int first_lane = static_cast<int>(threadIdx.x % 4) * 8;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const float even = __shfl_sync(0xffffffff, change[half], first_lane);
      const float odd = __shfl_sync(0xffffffff, change[half], first_lane + 4);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int i = 0; i < 4; ++i) values[group][half][i] *= i % 2 == 0 ? even : odd;
      }
    }
  }
};

}  // namespace quire::cuda::sm90::flash_attention
