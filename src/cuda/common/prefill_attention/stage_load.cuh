// SPDX-License-Identifier: Apache-2.0
// The blocks of K, or of V, as one of their two loading warps sees them: copies into the next
// stage, and, where the cache is e4m3, its half of the rows made f16 when they have landed.
#pragma once

#include <cuda_fp8.h>

#include "cuda/common/prefill_attention/shared.cuh"

namespace quire::cuda {

// A copied block of e4m3 becomes the f16 block that products read, in place.
//
// A copied row holds 128 columns in 128 bytes, an f16 swizzle column 64 columns in as many. Rows stand where
// the second of their two swizzle columns will (or the only one), row over row: whoever has read a whole row
// may write it, and no other row is touched.

// 16 e4m3 into 16 f16.
__device__ inline void widen(const uint4& from, uint4 (&to)[2]) {
  const auto pair = [](std::uint32_t word, int half) {
    const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(
        static_cast<__nv_fp8x2_storage_t>(word >> (16 * half)), __NV_E4M3);
    return static_cast<std::uint32_t>(pair.x) | static_cast<std::uint32_t>(pair.y) << 16;
  };
  to[0] = make_uint4(pair(from.x, 0), pair(from.x, 1), pair(from.y, 0), pair(from.y, 1));
  to[1] = make_uint4(pair(from.z, 0), pair(from.z, 1), pair(from.w, 0), pair(from.w, 1));
}

// By one of two warps: half of the rows, four at a time, eight lanes on each.
template <PrefillConfig kConfig, int kSwizzleColumns>
__device__ inline void convert_block(std::byte* block, int half) {
  constexpr int kBatch = 4;
  constexpr int kRows = kConfig.block_keys / 2;
  constexpr int kCopied = (kSwizzleColumns + 1) / 2;
  static_assert(kRows % (4 * kBatch) == 0);
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int chunk = lane % 8;
  const bool is_high = chunk >= 4;
#pragma unroll 1
  for (int first = half * kRows; first < (half + 1) * kRows; first += 4 * kBatch) {
#pragma unroll 1
    for (int copied = 0; copied < kCopied; ++copied) {
      const std::byte* rows =
          block + kConfig.copied_swizzle_column(copied, kCopied, kSwizzleColumns) *
                      PrefillShared<kConfig>::kSwizzleColumnBytes;
      uint4 raw[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int row = first + 4 * k + lane / 8;
        raw[k] = *reinterpret_cast<const uint4*>(rows + row * kRowBytes + (chunk ^ (row % 8)) * 16);
      }
      __syncwarp();
      const int swizzle_column = 2 * copied + (is_high ? 1 : 0);
      std::byte* to = block + swizzle_column * PrefillShared<kConfig>::kSwizzleColumnBytes;
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int row = first + 4 * k + lane / 8;
        uint4 wide[2];
        widen(raw[k], wide);
        if (swizzle_column >= kSwizzleColumns) continue;
        // The upper four lanes write their second half first: all eight then hit different banks.
        std::byte* at = to + row * kRowBytes;
        const int vector = 2 * (chunk % 4);
        *reinterpret_cast<uint4*>(at + ((vector + (is_high ? 1 : 0)) ^ (row % 8)) * 16) =
            is_high ? wide[1] : wide[0];
        *reinterpret_cast<uint4*>(at + ((vector + (is_high ? 0 : 1)) ^ (row % 8)) * 16) =
            is_high ? wide[0] : wide[1];
      }
    }
  }
  cutlass::arch::fence_view_async_shared();
  __syncwarp();
}

// Whether copied blocks become f16.
enum class Conversion : std::uint8_t { none, to_f16 };

template <PrefillConfig kConfig, Conversion kConversion, int kSwizzleColumns, int kStages>
class StageLoad {
 public:
  using Stage = std::byte[kSwizzleColumns * PrefillShared<kConfig>::kSwizzleColumnBytes];

  __device__ StageLoad(Stage* stages, RingBarriers<kStages>& ring, EmptyBarrier* ready, int half)
      : stages_(stages), ring_(ring), ready_(ready), half_(half) {}

  // copy(stage, block, full): starts this warp's copies of a block.
  template <typename Copy> __device__ void load(const Copy& copy) {
    // While consumers still need the next stage, the block before it has time to be converted.
    if (kConversion == Conversion::to_f16 && is_pending_ && !is_empty()) convert();
    ring_.wait_empty(at_);
    copy(at_.stage, stages_[at_.stage], ring_.full[at_.stage]);
    convert();
    is_pending_ = true;
    at_.advance();
  }

  // Converts the block that has been copied last. Before waiting for anything that consumers do.
  __device__ void convert() {
    if constexpr (kConversion == Conversion::to_f16) {
      if (!is_pending_) return;
      is_pending_ = false;
      ring_.wait_full(convert_at_);
      convert_block<kConfig, kSwizzleColumns>(stages_[convert_at_.stage], half_);
      ready_[convert_at_.stage].arrive();
      convert_at_.advance();
    }
  }

 private:
  __device__ bool is_empty() const {
    return __shfl_sync(0xffffffff, ring_.empty[at_.stage].test_wait(at_.phase ^ 1), 0);
  }

  Stage* stages_;
  RingBarriers<kStages>& ring_;
  EmptyBarrier* ready_;
  const int half_;
  bool is_pending_ = false;
  RingPosition<kStages> at_;
  RingPosition<kStages> convert_at_;
};

// Rows of V behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.

// By a warpgroup: rows first … of a block. Every consumer writes the zeros for itself; the others
// write the same.
template <PrefillConfig kConfig> __device__ inline void zero_values(std::byte* block, int first) {
  constexpr int kChunks = kRowBytes / 16;
#pragma unroll 1
  for (int swizzle_column = 0; swizzle_column < kConfig.value_swizzle_columns(); ++swizzle_column) {
    auto* chunks = reinterpret_cast<uint4*>(
        block + swizzle_column * PrefillShared<kConfig>::kSwizzleColumnBytes);
#pragma unroll 1
    for (int chunk = first * kChunks + static_cast<int>(threadIdx.x % 128);
         chunk < kConfig.block_keys * kChunks; chunk += 128) {
      chunks[chunk] = uint4{};
    }
  }
}

}  // namespace quire::cuda
