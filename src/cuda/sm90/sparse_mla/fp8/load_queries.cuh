// SPDX-License-Identifier: Apache-2.0
// A token's queries. Latent columns become f16, exactly but for the range: so each head is multiplied by
// a power of two that brings its largest number to the top of it. (What is 2^40 below that is lost.)
// Rope columns stay bf16. A warp takes a head at a time, a lane 16 of its columns.
#pragma once

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/sparse_mla/fp8/shared.cuh"
#include "cuda/sm90/sparse_mla/params.h"

namespace quire::cuda::sm90::sparse_mla {

// 16 columns.
struct QueryChunk {
  std::uint32_t words[8] = {};

  __device__ void load(const std::byte* from) {
    const auto* pieces = reinterpret_cast<const uint4*>(from);
    const uint4 low = pieces[0];
    const uint4 high = pieces[1];
    words[0] = low.x, words[1] = low.y, words[2] = low.z, words[3] = low.w;
    words[4] = high.x, words[5] = high.y, words[6] = high.z, words[7] = high.w;
  }
  // The largest exponent of a finite number, in its place.
  __device__ std::uint32_t top() const {
    constexpr std::uint32_t kInfinite = 0x7f80;
    std::uint32_t most = 0;
#pragma unroll
    for (const std::uint32_t word : words) {
      const std::uint32_t low = word & kInfinite;
      const std::uint32_t high = word >> 16 & kInfinite;
      most = max(most, low == kInfinite ? 0 : low);
      most = max(most, high == kInfinite ? 0 : high);
    }
    return most;
  }
  template <DType kTo> __device__ void scale(float by) {
#pragma unroll
    for (std::uint32_t& word : words) {
      word =
          pack_pair<kTo>(__uint_as_float(word << 16) * by, __uint_as_float(word & 0xffff0000) * by);
    }
  }
  // `piece`: of the row's eight in a swizzle column. In the order of columns, or as decoded rows have them: two of
  // every four, then the other two.
  __device__ void store_in_order(std::byte* row, int head, int piece) const {
    at(row, head, piece) = {words[0], words[1], words[2], words[3]};
    at(row, head, piece + 1) = {words[4], words[5], words[6], words[7]};
  }
  __device__ void store_permuted(std::byte* row, int head, int piece) const {
    at(row, head, piece) = {words[0], words[2], words[4], words[6]};
    at(row, head, piece + 1) = {words[1], words[3], words[5], words[7]};
  }

 private:
  __device__ static uint4& at(std::byte* row, int head, int piece) {
    return *reinterpret_cast<uint4*>(row + ((piece ^ (head % 8)) * 16));
  }
};

template <typename Variant> class QueryLoad {
 public:
  __device__ QueryLoad(const SparseParams& params, Fp8Shared<Variant>& shared)
      : params_(params), shared_(shared) {}

  // By all warps of the warpgroups that attend.
  __device__ void load(const ItemNote& item) {
    const auto warp = static_cast<int>(threadIdx.x / 32);
    const std::byte* from = params_.q_rows + item.token * params_.q_token_bytes;
#pragma unroll 1
    for (int first = warp * kWarpHeads; first < (warp + 1) * kWarpHeads; first += kAtOnce) {
      QueryChunk latent[kAtOnce];
      QueryChunk rope[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int head = item.first_head + first + i;
        if (head >= params_.work.heads) continue;
        const std::byte* row = from + head * params_.q_head_bytes + lane() * 32;
        latent[i].load(row);
        if (lane() < 4) rope[i].load(row + SparseConfig::kLatent * 2);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) store(first + i, latent[i], rope[i]);
    }
    cutlass::arch::fence_view_async_shared();
  }

 private:
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kWarpHeads = kConfig.heads / (2 * Fp8Config::kWarps);
  static constexpr int kAtOnce = kWarpHeads < 4 ? kWarpHeads : 4;

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }

  __device__ void store(int head, QueryChunk& latent, QueryChunk& rope) {
    const int top = __reduce_max_sync(0xffffffff, max(latent.top(), rope.top())) >> 7;
    const int power = min(max(top, 15), 254);
    const float factor = __int_as_float((268 - power) << 23);  // 2^(141 - power)
    if (lane() == 0) shared_.query_factors[head] = __int_as_float((power - 14) << 23);
    latent.scale<DType::f16>(factor);
    latent.store_permuted(shared_.q[lane() / 4] + head * kRowBytes, head, lane() % 4 * 2);
    if (lane() >= 4) return;
    std::byte* row = shared_.q[Fp8Config::kSwizzleColumns - 1] + head * kRowBytes;
    rope.scale<DType::bf16>(factor);
    rope.store_in_order(row, head, lane() * 2);
  }

  const SparseParams& params_;
  Fp8Shared<Variant>& shared_;
};

}  // namespace quire::cuda::sm90::sparse_mla
