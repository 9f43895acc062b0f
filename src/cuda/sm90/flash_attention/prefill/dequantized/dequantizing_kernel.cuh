// SPDX-License-Identifier: Apache-2.0
// The prefill kernel over a cache of e4m3 that it dequantizes itself:
//
//   warp 0          load        tiles off the schedule, q, the blocks of K and V
//   warps 1 – 3     dequantize  blocks into the workspace, ahead of it
//   warpgroups 1 –  attend      64 query rows each: scores, softmax, sums, and the finished rows
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/sm90/flash_attention/prefill/block_walk.cuh"
#include "cuda/sm90/flash_attention/prefill/dequantized/dequantized_source.cuh"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

// Warps that make blocks of bf16 of the cache's e4m3, a little before the tiles that read them: the
// tensor cores work meanwhile, so this costs next to nothing, where a kernel before costs its
// bytes.
// They wait for nobody.

// K and V of a quarter of a block's keys.
struct BlockQuarter : WalkedBlock {
  int index;  // of the block's quarters
};

class DequantizeRole {
 public:
  static_assert(kDequantizedKeys == kWalkedKeys);

  // `warp` of the `warps` of all CTAs.
  __device__ DequantizeRole(const PrefillParams& params, const DequantizedKeys& keys, int warp,
                            int warps)
      : keys_(keys), walk_(params, keys.kv_heads, keys.blocks), index_(warp), warps_(warps) {}

  // The next quarter's pages are asked for before this one's rows.
  __device__ void run() {
    BlockQuarter at = next();
    PageSlot slot = find(at);
    while (at.sequence >= 0) {
      const BlockQuarter following = next();
      const PageSlot following_slot = find(following);
      dequantize(at, slot);
      at = following;
      slot = following_slot;
    }
  }

 private:
  static constexpr unsigned kWarp = 0xffffffff;
  static constexpr int kWideBytes = 256;      // of a row of bf16
  static constexpr int kRowLanes = 128 / 16;  // that load a row of e4m3
  static constexpr int kRows = kDequantizedKeys / kBlockQuarters;
  static constexpr int kLoadRows = 32 / kRowLanes;  // of one load of the warp
  static constexpr int kLoads = kRows / kLoadRows;
  static constexpr int kLoadWideBytes = kLoadRows * kWideBytes;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  // Of load i.
  __device__ static int first_key(const BlockQuarter& at, int i) {
    return at.block * kDequantizedKeys + at.index * kRows + i * kLoadRows;
  }

  __device__ BlockQuarter next() {
    const BlockQuarter found{walk_.find(index_ / kBlockQuarters), index_ % kBlockQuarters};
    index_ += warps_;
    return found;
  }

  // Lane i's slot is that of load i: pages are multiples of 8 rows, those of a load are of one. Page 0
  // where there is no key.
  __device__ PageSlot find(const BlockQuarter& at) const {
    const int key = first_key(at, lane());
    if (at.sequence < 0 || lane() >= kLoads || key >= at.end_key) return {};
    return PageCursor(keys_.kv.pages, at.sequence).find(key, at.end_key);
  }

  // Where the rows of lane i's load i begin.
  __device__ std::int64_t source_of(const BlockQuarter& at, const PageSlot& slot) const {
    const PagedOperand& kv = keys_.kv;
    return slot.page * kv.page_stride_bytes + slot.row * kv.token_stride_bytes +
           at.head * kv.head_stride_bytes;
  }

  __device__ void dequantize(const BlockQuarter& at, const PageSlot& slot) {
    const bool is_missing = slot.page >= keys_.kv.pages.num_pages();
    const unsigned missing = __ballot_sync(kWarp, is_missing);
    const int place = keys_.place(at.sequence, at.head, at.block);
    const float key_scale = keys_.scales.of_keys(at.head);
    const float value_scale = keys_.scales.of_values(at.head);
    const Rows rows{.source = source_of(at, slot),
                    .missing = missing,
                    .end = at.end_key - first_key(at, 0) - lane() / kRowLanes,
                    .to = target_of(place, at.index)};
    if (key_scale == 1.0F && value_scale == 1.0F) {
      copy(rows, [](std::uint32_t pair, int) { return widened(pair); });
    } else {
      copy(rows, [&](std::uint32_t pair, int side) {
        return widened(pair, side == 0 ? key_scale : value_scale);
      });
    }
    finish_quarter(keys_.states + place, keys_.states + keys_.side_blocks + place, at.index,
                   groups_of(missing));
  }

  // What a warp copies at a time: kLoads loads of kLoadRows rows.
  struct Rows {
    std::int64_t source;  // lane i's: where load i begins, from the first key of all
    unsigned missing;     // bit i: load i has no page
    int end;              // of this lane's rows, that there are
    std::byte* to;        // this lane's first
  };
  __device__ std::byte* target_of(int place, int quarter) const {
    const std::int64_t row =
        std::int64_t{place} * kDequantizedKeys + quarter * kRows + lane() / kRowLanes;
    return keys_.rows + row * kWideBytes + lane() % kRowLanes * 32;
  }
  // Bits of loads, two for 8 keys, to a bit for 8 keys.
  __device__ static std::uint32_t groups_of(unsigned loads) {
    std::uint32_t groups = 0;
#pragma unroll
    for (int group = 0; group < kRows / 8; ++group) groups |= (loads >> 2 * group & 1) << group;
    return groups;
  }

  // As soon as a row of K is stored, its registers are a row of V's. One code for both: registers are
  // few.
  template <typename Widen> __device__ void copy(const Rows& rows, const Widen& widen) const {
    uint4 raw[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) raw[i] = load(rows, i, 0);
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
      std::byte* to =
          rows.to + side * (std::int64_t{keys_.side_blocks} * (kDequantizedKeys * kWideBytes));
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        store(to + i * kLoadWideBytes, raw[i],
              [&](std::uint32_t pair) { return widen(pair, side); });
        if (side == 0) raw[i] = load(rows, i, 1);
      }
    }
  }

  // Zeros where there is nothing to read.
  __device__ uint4 load(const Rows& rows, int i, int side) const {
    const std::int64_t source = __shfl_sync(kWarp, rows.source, i);
    const bool is_there = (rows.missing >> i & 1) == 0 && i * kLoadRows < rows.end;
    if (!is_there) return {};
    const PagedOperand& kv = keys_.kv;
    const std::byte* from = kv.keys + source + side * kv.value_offset_bytes +
                            lane() / kRowLanes * kv.token_stride_bytes + lane() % kRowLanes * 16;
    return __ldg(reinterpret_cast<const uint4*>(from));
  }

  template <typename Widen>
  __device__ static void store(std::byte* to, const uint4& raw, const Widen& widen) {
    auto* vectors = reinterpret_cast<uint4*>(to);
    vectors[0] = make_uint4(widen(raw.x & 0xffff), widen(raw.x >> 16), widen(raw.y & 0xffff),
                            widen(raw.y >> 16));
    vectors[1] = make_uint4(widen(raw.z & 0xffff), widen(raw.z >> 16), widen(raw.w & 0xffff),
                            widen(raw.w >> 16));
  }

  // Two e4m3 to two bf16.
  __device__ static float2 numbers_of(std::uint32_t pair) {
    return __half22float2(
        __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3));
  }
  __device__ static std::uint32_t packed(float low, float high) {
    const __nv_bfloat162 wide = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&wide);
  }
  __device__ static std::uint32_t widened(std::uint32_t pair) {
    const float2 numbers = numbers_of(pair);
    return packed(numbers.x, numbers.y);
  }
  __device__ static std::uint32_t widened(std::uint32_t pair, float scale) {
    const float2 numbers = numbers_of(pair);
    return packed(numbers.x * scale, numbers.y * scale);
  }

  const DequantizedKeys& keys_;
  BlockWalk walk_;
  int index_;
  const int warps_;
};

template <PrefillConfig kConfig>
__device__ inline void dequantize_and_attend(const PrefillParams& params,
                                             const DequantizedKeys& keys) {
  static_assert(kConfig.loading_warps == 2);  // warp 0 does the work of both
  run_block<kConfig, DequantizedSource<kConfig>, PrefillAttend<kConfig>>(
      params, keys, [&](PrefillShared<kConfig>& shared) {
        if (warp_in_block() == 0) {
          LoadDequantized<kConfig>(params, keys, shared).run();
        } else {
          // All CTAs take part in what is needed first.
          const auto thread_blocks = static_cast<int>(gridDim.x);
          const int warp = static_cast<int>(blockIdx.x) + (warp_in_block() - 1) * thread_blocks;
          DequantizeRole(params, keys, warp, 3 * thread_blocks).run();
        }
      });
}

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    dequantizing_kernel(const __grid_constant__ PrefillParams params,
                        const __grid_constant__ DequantizedKeys keys) {
  dequantize_and_attend<Variant::kConfig>(params, keys);
}

template <typename Variant>
void launch_dequantizing(const PrefillParams& params, const DequantizedKeys& keys,
                         const PrefillLaunch& where) {
  launch(dequantizing_kernel<Variant>, prefill_shape<Variant::kConfig>(where), where.stream, params,
         keys);
}

}  // namespace quire::cuda::sm90::flash_attention
