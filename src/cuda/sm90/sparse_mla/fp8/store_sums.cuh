// SPDX-License-Identifier: Apache-2.0
// The finished sums of both warpgroups, added and stored: to the output, or to pieces that are merged
// later. They pass through shared memory as rows of heads, one half of the columns at a time, so that
// few instructions store them: code that runs once is mostly waited for. (Stored from where the products
// leave them, 32 heads took 19 µs.)
#pragma once

#include "cuda/sm90/sparse_mla/fp8/column_softmax.cuh"
#include "cuda/sm90/sparse_mla/fp8/tile_sums.cuh"
#include "cuda/sm90/sparse_mla/params.h"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant> class StoreSums {
 public:
  using Sums = ValueSums<Variant>;
  using Softmax = ColumnSoftmax<Variant>;

  // `place`: of kBytes. By both warpgroups.
  __device__ StoreSums(const SparseParams& params, const ItemNote& item, std::byte* place,
                       int warpgroup, Attenders& attenders)
      : params_(params),
        item_(item),
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
    const int heads = min(kConfig.heads, params_.work.heads - item_.first_head);
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
    if (item_.is_piece()) {
      const std::int64_t line = std::int64_t{item_.piece} * SparseConfig::kHeads + block_head;
      *reinterpret_cast<float4*>(params_.pieces.sums + line * SparseConfig::kLatent + column) = x;
      return;
    }
    const AttendOutput& output = params_.output;
    std::byte* row = output.out + item_.token * output.token_bytes +
                     std::int64_t{item_.first_head + block_head} * output.head_bytes;
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
  const ItemNote& item_;
  float* place_;
  int warpgroup_;
  Attenders& attenders_;
};

}  // namespace quire::cuda::sm90::sparse_mla
