// SPDX-License-Identifier: Apache-2.0
// A work tile's queries into shared memory as codes. Rows, or groups of 128 latent columns of a row where scores are
// promoted, are multiplied by the power of two that brings their largest number into [128, 256). bf16 has 8 digits: an e4m3 and an e5m2 number hold them all,
// down to 2^-14 of the group's largest.
#pragma once

#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_decode/fp8_pingpong/shared.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

template <Fp8PingpongConfig kConfig> class CodeQueries {
 public:
  using Shared = Fp8PingpongShared<kConfig>;

  // `first_row`: of a work tile, this CTA's.
  __device__ CodeQueries(const LatentParams& params, Shared& shared, int first_row)
      : params_(params), shared_(shared), first_row_(first_row) {}

  // By the eight warps that attend, `warp` of them; nobody reads queries. Rows beyond the work tile's are zeros.
  __device__ void load(const LatentWorkTile& work_tile, int warp) const {
    // Lane l knows where the warp's row l is.
    const std::int64_t own = offset_of(work_tile, warp * kWarpRows + lane() % kWarpRows);
    // A row after another: code that runs once a work tile is mostly waited for, and four rows at once were four times the
    // code.
    Chunks next;
    fetch(__shfl_sync(0xffffffff, own, 0), next);
#pragma unroll 1
    for (int i = 0; i < kWarpRows; ++i) {
      const Chunks chunks = {next[0], next[1], next[2]};
      if (i + 1 < kWarpRows) fetch(__shfl_sync(0xffffffff, own, i + 1), next);
      place(warp * kWarpRows + i, chunks);
    }
    cutlass::arch::fence_view_async_shared();
  }

 private:
  static constexpr int kTerms = kConfig.terms;
  static constexpr int kWarpRows = Fp8Pingpong::kRows / 8;
  // A lane's: chunks l and l + 32 of the latent columns, of 8; chunk l of the rope columns, of lanes below 8.
  static constexpr int kHalves = 2;
  using Chunks = uint4[kHalves + 1];
  static constexpr int kTop = 7;  // the exponent of a group's largest number

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }

  // -1: not the work tile's.
  __device__ std::int64_t offset_of(const LatentWorkTile& work_tile, int own) const {
    const int row = first_row_ + own;
    if (row >= work_tile.rows) return -1;
    const int token = row / params_.heads;
    return (work_tile.first_token + token) * params_.queries.token_stride_bytes +
           (row - token * params_.heads) * params_.queries.head_stride_bytes;
  }

  __device__ static float low(std::uint32_t two) {
    return __uint_as_float(two << 16);
  }
  __device__ static float high(std::uint32_t two) {
    return __uint_as_float(two & 0xffff0000U);
  }
  // The largest magnitude of eight numbers, as bits: infinities and NaN are above all numbers.
  __device__ static std::uint32_t largest(const uint4& eight) {
    constexpr std::uint32_t kMagnitudes = 0x7fff7fff;
    const std::uint32_t two = __vmaxu2(__vmaxu2(eight.x & kMagnitudes, eight.y & kMagnitudes),
                                       __vmaxu2(eight.z & kMagnitudes, eight.w & kMagnitudes));
    return max(two & 0xffff, two >> 16);
  }
  // Without infinities and NaN.
  __device__ static uint4 finite(const uint4& eight) {
    const auto both = [](std::uint32_t two) {
      if ((two & 0x7f80) == 0x7f80) two &= 0xffff0000U;
      if ((two & 0x7f800000) == 0x7f800000) two &= 0xffff;
      return two;
    };
    return {both(eight.x), both(eight.y), both(eight.z), both(eight.w)};
  }
  __device__ static float power_of_two(int exponent) {
    return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
  }
  // Of a magnitude's bits; what is too small for a normal number counts as the smallest.
  __device__ static int exponent_of(std::uint32_t top) {
    return static_cast<int>(top >> 7) - 127;
  }
  __device__ static int powers_to_raise(std::uint32_t top) {
    return top > 0 ? max(-126, min(126, kTop - exponent_of(top))) : 0;
  }

  // Eight columns as two words of each term.
  __device__ static void code(const uint4& eight, float factor, bool is_finite,
                              std::uint32_t (&words)[kTerms][2]) {
    const std::uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const CodedFour<kTerms> four(low(pairs[2 * i]) * factor, high(pairs[2 * i]) * factor,
                                   low(pairs[2 * i + 1]) * factor, high(pairs[2 * i + 1]) * factor);
#pragma unroll
      for (int term = 0; term < kTerms; ++term) words[term][i] = four.words[term];
    }
    if (kTerms == 2 && !is_finite) keep_infinities(pairs, words);
  }
  // e5m2 has infinities: what is left of one is one.
  __device__ static void keep_infinities(const std::uint32_t (&pairs)[4],
                                         std::uint32_t (&words)[kTerms][2]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t bits = pairs[i / 2] >> (16 * (i % 2)) & 0xffff;
      if ((bits & 0x7fff) != 0x7f80) continue;
      const int shift = 8 * (i % 4);
      words[1][i / 4] &= ~(0xffU << shift);
      words[1][i / 4] |= (0x7cU | (bits >> 8 & 0x80)) << shift;
    }
  }

  __device__ void fetch(std::int64_t offset, Chunks& chunks) const {
    const std::byte* row = params_.queries.data + offset + lane() * 16;
#pragma unroll
    for (int i = 0; i <= kHalves; ++i) {
      const bool is_there = offset >= 0 && (i < kHalves || lane() < 8);
      chunks[i] = is_there ? *reinterpret_cast<const uint4*>(row + i * 512) : uint4{};
    }
  }

  // The largest of two magnitudes in every kLanes lanes that follow each other.
  template <int kLanes> __device__ static std::uint32_t largest_of(std::uint32_t two) {
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) {
      two = __vmaxu2(two, __shfl_xor_sync(0xffffffff, two, step));
    }
    return two;
  }

  // Powers that a row is to be raised by: a group of 128 columns in the lane's halves, and rope.
  struct Raised {
    int by[kHalves + 1];
  };
  __device__ static Raised raise(const Chunks& chunks) {
    constexpr bool kHasRope = kConfig.kind == Fp8RowKind::uniform;
    if constexpr (kConfig.promotes()) {
      const std::uint32_t halves = largest_of<16>(largest(chunks[0]) | largest(chunks[1]) << 16);
      const int rope = kHasRope ? powers_to_raise(largest_of<8>(largest(chunks[2]))) : 0;
      return {{powers_to_raise(halves & 0xffff), powers_to_raise(halves >> 16), rope}};
    } else {
      const std::uint32_t both =
          largest_of<32>(max(largest(chunks[0]), largest(chunks[1])) | largest(chunks[2]) << 16);
      const std::uint32_t latents = both & 0xffff;
      const std::uint32_t rope = both >> 16;
      int power = powers_to_raise(kHasRope ? max(latents, rope) : latents);
      // Rope columns of bf16 are multiplied by the same power, and stay finite.
      if (!kHasRope) power = min(power, 120 - exponent_of(rope));
      return {{power, power, power}};
    }
  }

  __device__ void place(int row, const Chunks& chunks) const {
    constexpr std::uint32_t kInfinity = 0x7f80;
    const std::uint32_t top = max(max(largest(chunks[0]), largest(chunks[1])), largest(chunks[2]));
    const bool is_finite = __all_sync(0xffffffff, top < kInfinity);
    Raised raised;
    if (is_finite) {
      raised = raise(chunks);
    } else {
      const Chunks numbers = {finite(chunks[0]), finite(chunks[1]), finite(chunks[2])};
      raised = raise(numbers);
    }
#pragma unroll
    for (int i = 0; i < kHalves; ++i) {
      place_latents(row, 32 * i + lane(), chunks[i], raised.by[i], is_finite);
    }
    if (lane() < 8) place_rope(row, lane(), chunks[kHalves], raised.by[kHalves], is_finite);
  }

  // `chunk`: of 8 columns.
  __device__ void place_latents(int row, int chunk, const uint4& eight, int raised,
                                bool is_finite) const {
    std::uint32_t words[kTerms][2];
    code(eight, power_of_two(raised), is_finite, words);
    const int group = chunk / 16;
    const int in_group = chunk % 16;
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
      *reinterpret_cast<uint2*>(shared_.q[term][group] + swizzle_column_offset(row, in_group / 2) +
                                in_group % 2 * 8) = {words[term][0], words[term][1]};
    }
    if (in_group == 0) shared_.query_factors[group][row] = power_of_two(-raised);
  }

  __device__ void place_rope(int row, int chunk, const uint4& eight, int raised,
                             bool is_finite) const {
    if constexpr (kConfig.kind != Fp8RowKind::uniform) {
      *reinterpret_cast<uint4*>(shared_.q_rope + swizzle_column_offset(row, chunk)) =
          scale_vec8(eight, power_of_two(raised));
    } else {
      std::uint32_t words[kTerms][2];
      code(eight, power_of_two(raised), is_finite, words);
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        *reinterpret_cast<uint2*>(shared_.q_rope +
                                  swizzle_column_offset(row, 4 * term + chunk / 2) +
                                  chunk % 2 * 8) = {words[term][0], words[term][1]};
      }
      if (chunk == 0) shared_.query_factors[Fp8Pingpong::kGroups][row] = power_of_two(-raised);
    }
  }

  const LatentParams& params_;
  Shared& shared_;
  const int first_row_;
};

}  // namespace quire::cuda::sm90::mla_decode
