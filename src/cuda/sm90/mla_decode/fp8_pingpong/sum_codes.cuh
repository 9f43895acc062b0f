// SPDX-License-Identifier: Apache-2.0
// Oᵀ += Vᵀ · Pᵀ over a tile: Vᵀ from the bytes of the keys by way of registers, P from shared memory.
#pragma once

#include "cuda/common/mma/wgmma.cuh"
#include "cuda/sm90/mla_decode/fp8_pingpong/shared.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

// Products of 64 × 64 × 32 codes. kTerm: of q, or of P.
template <int kTerm> struct CodeProduct {
  using Scores = gmma::MMA_64x64x32_F32E4M3E4M3_SS_TN<>;
  using Sums = gmma::MMA_64x64x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct CodeProduct<1> {
  using Scores = gmma::MMA_64x64x32_F32E5M2E4M3_SS_TN<>;
  using Sums = gmma::MMA_64x64x32_F32E4M3E5M2_RS_TN<>;
};

// Oᵀ of a group: 256 latent columns × the CTA's query rows, in four parts of 64 columns. A thread has of every 16 columns
// the neighbours 2 (lane / 4) and one more, of every 8 rows 2 (lane % 4) and one more.
template <Fp8PingpongConfig kConfig> class CodeSums {
 public:
  using Shared = Fp8PingpongShared<kConfig>;
  static constexpr int kParts = 4;
  static constexpr int kPartSums = Fp8Pingpong::kRows / 2;  // of a thread

  __device__ CodeSums(Shared& shared, int group) : shared_(shared), group_(group) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const auto warp = static_cast<int>(threadIdx.x % 128 / 32);
    // Where a lane's key and the warp's 16 columns stand in the first half of a swizzle column.
    own_ = lane * kRowBytes + ((warp ^ lane) % 8) * 16;
  }

  __device__ void clear() {
#pragma unroll
    for (auto& part : sums_) {
#pragma unroll
      for (float& sum : part) sum = 0.0F;
    }
  }

  // The tile's P is there. `slot`: of its factors; `parity`: of the tile.
  __device__ void add(int stage, int parity, int slot) {
    const std::uint32_t weights = weights_of(parity);
    const std::uint32_t values = values_of(stage);
    float products[kBuffers][kPartSums];
    std::uint32_t words[2][kPartWords];
    fetch(values, 0, words[0]);
    rescale(slot);
    issue(weights, 0, words[0], products[0]);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const bool has_next = part + 1 < kParts;
      if (has_next) fetch(values, part + 1, words[(part + 1) % 2]);
      if (has_next && kBuffers == 2) {
        issue(weights, part + 1, words[(part + 1) % 2], products[(part + 1) % 2]);
        cute::warpgroup_wait<1>();
      } else {
        cute::warpgroup_wait<0>();
      }
      pin(products[part % kBuffers]);
      collect(products[part % kBuffers], stage, part);
      if (has_next && kBuffers == 1) issue(weights, part + 1, words[(part + 1) % 2], products[0]);
    }
  }

  // The row's numbers to where they belong: `numbers` neighbours of `part`.
  __device__ float2 pair(int part, int row_eight, int e) const {
    return {sums_[part][4 * row_eight + e], sums_[part][4 * row_eight + 2 + e]};
  }

 private:
  static constexpr int kPartWords = 2 * 4;  // of 64 keys
  // Of products under way: one where the next tile's scores are under way beside them.
  static constexpr int kBuffers = kConfig.promotes() ? 2 : 1;
  static constexpr int kStepKeys = 32;

  __device__ std::uint32_t weights_of(int parity) const {
    return broadcast(address_field(&shared_.weights[parity]) | 1U << 16);
  }
  __device__ std::uint32_t values_of(int stage) const {
    return shared_address(&shared_.latents[stage][group_ * kParts / 2]) + own_;
  }

  // 16 columns × 64 keys of this warp: columns 2r, 2r + 1 are rows r, r + 8 of the product.
  __device__ static void fetch(std::uint32_t values, int part, std::uint32_t (&words)[kPartWords]) {
    const std::uint32_t at =
        (part % 2 == 0 ? values : values ^ 64) + part / 2 * Fp8Pingpong::kColumnBytes;
#pragma unroll
    for (int step = 0; step < Fp8Pingpong::kKeys / kStepKeys; ++step) {
      std::uint32_t raw[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(raw[0]), "=r"(raw[1]), "=r"(raw[2]), "=r"(raw[3])
                   : "r"(at + step * kStepKeys * kRowBytes)
                   : "memory");
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        words[4 * step + 2 * i] = __byte_perm(raw[2 * i], raw[2 * i + 1], 0x6420);
        words[4 * step + 2 * i + 1] = __byte_perm(raw[2 * i], raw[2 * i + 1], 0x7531);
      }
    }
  }

  template <int kTerm>
  __device__ static void issue_term(std::uint32_t weights, const std::uint32_t (&words)[kPartWords],
                                    float (&products)[kPartSums]) {
    using Op = typename CodeProduct<kTerm>::Sums;
#pragma unroll
    for (int step = 0; step < Fp8Pingpong::kKeys / kStepKeys; ++step) {
      const std::uint32_t bytes = kTerm * Fp8Pingpong::kWeightBytes + step * kStepBytes;
      detail::issue<Op>(&words[4 * step], descriptor(weights + (bytes >> 4), kHalfRowsHigh),
                        products,
                        kTerm == 0 && step == 0 ? gmma::ScaleOut::Zero : gmma::ScaleOut::One,
                        std::make_index_sequence<kPartSums>{});
    }
  }
  __device__ void issue(std::uint32_t weights, int part, std::uint32_t (&words)[kPartWords],
                        float (&products)[kPartSums]) const {
    const int scale_group = kConfig.scale_groups() == 1 ? 0 : group_ * 2 + part / 2;
    const std::uint32_t own =
        weights + (scale_group * kConfig.terms * Fp8Pingpong::kWeightBytes >> 4);
    pin(products);
    pin(words);
    cute::warpgroup_arrive();
    issue_term<0>(own, words, products);
    if constexpr (kConfig.terms == 2) issue_term<1>(own, words, products);
    cute::warpgroup_commit_batch();
  }

  __device__ void collect(const float (&products)[kPartSums], int stage, int part) {
    if constexpr (kConfig.kind == Fp8RowKind::uniform) {
#pragma unroll
      for (int j = 0; j < kPartSums; ++j) sums_[part][j] += products[j];
    } else {
      const int scale_group = kConfig.scale_groups() == 1 ? 0 : group_ * 2 + part / 2;
      const float factor = shared_.powers[stage][scale_group];
#pragma unroll
      for (int j = 0; j < kPartSums; ++j)
        sums_[part][j] = fmaf(products[j], factor, sums_[part][j]);
    }
  }

  // Rows of a warp of the scores are two eights of this thread's.
  __device__ void rescale(int slot) {
    const auto lane = static_cast<int>(threadIdx.x % 4);
    const int4 rises = *reinterpret_cast<const int4*>(shared_.rises[slot]);
    if ((rises.x | rises.y | rises.z | rises.w) == 0) return;
    const int rises_of[] = {rises.x, rises.y, rises.z, rises.w};
#pragma unroll
    for (int warp = 0; warp < Fp8Pingpong::kGroupWarps; ++warp) {
      if (rises_of[warp] == 0) continue;
#pragma unroll
      for (int j = 2 * warp; j < 2 * warp + 2; ++j) {
        const float2 by =
            *reinterpret_cast<const float2*>(&shared_.factors[slot][8 * j + 2 * lane]);
#pragma unroll
        for (auto& part : sums_) {
          part[4 * j] *= by.x;
          part[4 * j + 1] *= by.y;
          part[4 * j + 2] *= by.x;
          part[4 * j + 3] *= by.y;
        }
      }
    }
  }

  Shared& shared_;
  const int group_;
  std::uint32_t own_;
  float sums_[kParts][kPartSums];
};

}  // namespace quire::cuda::sm90::mla_decode
