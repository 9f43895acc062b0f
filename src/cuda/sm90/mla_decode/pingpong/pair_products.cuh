// SPDX-License-Identifier: Apache-2.0
// The products of a group's 64 rows. Asynchronous: between a fence and a commit.
#pragma once

#include "cuda/sm90/mla_decode/latent/products.cuh"
#include "cuda/sm90/mla_decode/pingpong/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

inline constexpr int kHalfColumns = LatentConfig::kLatent / 2;
inline constexpr int kHalfSums = kHalfColumns / 2;  // of a thread

// scores (+)= q · Kᵀ over 64 columns. `a`, `b`: the descriptors' halves for swizzle column 0 of q and the keys.
__device__ inline void issue_swizzle_column(std::uint32_t a, std::uint32_t b, int swizzle_column,
                                            bool starts, float (&scores)[kTileScores]) {
  using Op = Wgmma<DType::bf16, Pingpong::kKeys>;
#pragma unroll
  for (int step = 0; step < kRowBytes / kStepBytes; ++step) {
    const int bytes = swizzle_column * Pingpong::kSwizzleColumnBytes + step * kStepBytes;
    detail::issue<Op>(
        descriptor(a + (bytes >> 4), kRowsHigh), descriptor(b + (bytes >> 4), kRowsHigh), scores,
        starts && step == 0 ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
        std::make_index_sequence<kTileScores>{});
  }
}

// The half of a descriptor that says where the values of 256 columns stand. `swizzle_column`: their first.
__device__ inline std::uint32_t values_low(const PingpongShared::SwizzleColumn& swizzle_column) {
  return broadcast(address_field(&swizzle_column) |
                   static_cast<std::uint32_t>(Pingpong::kSwizzleColumnBytes >> 4) << 16);
}

// sums += weights · V, the weights in registers.
__device__ inline void issue_own(const std::uint32_t (&words)[kTileScores / 2],
                                 const PingpongShared::SwizzleColumn& swizzle_column,
                                 float (&sums)[kHalfSums]) {
  using Op = RegisterWgmma<DType::bf16, kHalfColumns>;
  const std::uint32_t b = values_low(swizzle_column);
#pragma unroll
  for (int step = 0; step < Pingpong::kKeys / 16; ++step) {
    detail::issue<Op>(&words[4 * step], descriptor(b + (step * 16 * kRowBytes >> 4), kRowsHigh),
                      sums, cute::SM90::GMMA::ScaleOut::One, std::make_index_sequence<kHalfSums>{});
  }
}

// The same, the weights as the other group left them.
__device__ inline void issue_other(const std::byte* weights,
                                   const PingpongShared::SwizzleColumn& swizzle_column,
                                   float (&sums)[kHalfSums]) {
  using Op = TransposedWgmma<DType::bf16, kHalfColumns>;
  const std::uint32_t a = broadcast(descriptor_low(weights));
  const std::uint32_t b = values_low(swizzle_column);
#pragma unroll
  for (int step = 0; step < Pingpong::kKeys / 16; ++step) {
    detail::issue<Op>(descriptor(a + (step * kStepBytes >> 4), kRowsHigh),
                      descriptor(b + (step * 16 * kRowBytes >> 4), kRowsHigh), sums,
                      cute::SM90::GMMA::ScaleOut::One, std::make_index_sequence<kHalfSums>{});
  }
}

}  // namespace quire::cuda::sm90::mla_decode
