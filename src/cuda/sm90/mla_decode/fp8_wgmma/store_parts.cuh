// SPDX-License-Identifier: Apache-2.0
// A finished item's sums from registers: to the output, or as a piece to the workspace. A thread has two rows, 8 apart,
// and of every 16 columns four neighbours (shared.cuh: how values stand).
#pragma once

#include "cuda/common/thread/opaque.cuh"
#include "cuda/sm90/mla_decode/fp8_wgmma/shared.cuh"
#include "cuda/sm90/mla_decode/latent/row_stats.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/scale_power.cuh"

namespace quire::cuda::sm90::mla_decode {

template <SwapAbConfig kConfig> class StoreParts {
 public:
  // Where the thread's rows go, and what they are multiplied by. Rows beyond the item's: nowhere. `power`: what the keys'
  // factors were relative to.
  __device__ StoreParts(const LatentParams& params, const Fp8WgmmaShared<kConfig>& shared,
                        const LatentItem& item, int first_row, int power)
      : is_piece_(item.slot >= 0) {
    // Opaque: what follows from it would be kept beside the sums, from item to item.
    const int thread = opaque(static_cast<int>(threadIdx.x % 128));
    const int first_own = thread / 32 * 16 + thread % 32 / 4;
    const float unlift = ScalePower::unlift(power);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int own = first_own + 8 * i;
      const int row = first_row + own;
      targets_[i] = nullptr;
      if (own >= kConfig.rows || row >= item.rows) continue;
      const auto [max, sum] = shared.stats[own];
      if (is_piece_) {
        const std::int64_t at = item.slot * params.pieces.rows + row;
        targets_[i] = reinterpret_cast<std::byte*>(params.pieces.sums + at * LatentConfig::kLatent);
        factors_[i] = unlift;
        if (stores_stats()) params.pieces.stats[at] = {max, sum};
        continue;
      }
      const LatentOutputs& outputs = params.outputs;
      const std::int64_t token = item.first_token + row / params.heads;
      const int head = row % params.heads;
      const RowEnd end = end_row(outputs, head, max, sum);
      factors_[i] = end.factor * unlift;
      targets_[i] =
          outputs.out + token * outputs.token_stride_bytes + head * outputs.head_stride_bytes;
      if (outputs.lse != nullptr && stores_stats()) {
        outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = end.lse;
      }
    }
  }

  __device__ void store(int part, const float (&sums)[Fp8Wgmma::kPartSums]) const {
    const int column = Fp8Wgmma::first_column(part) + opaque(static_cast<int>(threadIdx.x % 4)) * 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (targets_[i] == nullptr) continue;
      std::byte* target = targets_[i] + column * (is_piece_ ? 4 : 2);
#pragma unroll
      for (int j = 0; j < Fp8Wgmma::kPartSums / 8; ++j) {
        const float* four = &sums[8 * j + 2 * i];
        const float by = factors_[i];
        store_four({four[0] * by, four[1] * by, four[4] * by, four[5] * by}, target, 4 * j);
      }
    }
  }

 private:
  // One of the threads that have a row.
  __device__ static bool stores_stats() {
    return threadIdx.x % 4 == 0 && threadIdx.x / 128 % 2 == 0;
  }

  // At `index`, counted in fours.
  __device__ void store_four(const float4& four, std::byte* target, int index) const {
    if (is_piece_) {
      reinterpret_cast<float4*>(target)[index] = four;
    } else {
      reinterpret_cast<uint2*>(target)[index] = {pack_pair<DType::bf16>(four.x, four.y),
                                                 pack_pair<DType::bf16>(four.z, four.w)};
    }
  }

  const bool is_piece_;
  float factors_[2];
  std::byte* targets_[2];
};

}  // namespace quire::cuda::sm90::mla_decode
