// SPDX-License-Identifier: Apache-2.0
// The prefill kernel with products of e4m3 over V that is transposed in the workspace:
//
//   warps 0, 1      load       tiles off the schedule, q, the blocks of K
//   warp 2          load       the blocks of V, transposed
//   warp 3          transpose  V of heads that come later
//   warpgroups 1 –  attend     64 query rows each
#pragma once

#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/prefill_attention/fp8/attend_fp8.cuh"
#include "cuda/common/prefill_attention/fp8/load_transposed.cuh"
#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/flash_attention/prefill/block_walk.cuh"
#include "cuda/sm90/flash_attention/prefill/kernel.cuh"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

// The warp that transposes V while the tensor cores work on the heads before: a block comes to shared
// memory, is transposed there and leaves for the workspace, from where every tile loads it. A kernel
// before, which does it for the first heads, would cost its bytes for all of them. The warp waits for
// nobody but TMA.

template <PrefillConfig kConfig> class TransposeAhead {
 public:
  using Source = PagedSource<kConfig>;
  static_assert(kConfig.block_keys == kWalkedKeys && kTransposedKeys == kWalkedKeys);

  __device__ TransposeAhead(const PrefillParams& params, const TransposedKeys& keys)
      : keys_(keys), walk_(params, keys.kv_heads, keys.blocks) {}

  // The next block is looked for while one comes.
  __device__ void run() {
    if (threadIdx.x % 32 == 0) {
      full().init(1);
      cutlass::arch::fence_barrier_init();
    }
    __syncwarp();
    WalkedBlock at = next();
    typename Source::BlockPart part = find(at);
    while (at.sequence >= 0) {
      load(part);
      tell();
      told_ = keys_.done + at.sequence * keys_.kv_heads + at.head;
      const WalkedBlock following = next();
      part = find(following);
      transpose(at);
      at = following;
    }
    tell();
  }

 private:
  __device__ static std::byte* stage() {
    __shared__ alignas(1024) std::byte block[PrefillShared<kConfig>::kValueBytes];
    return block;
  }
  __device__ static FullBarrier& full() {
    __shared__ std::uint64_t barrier;
    return reinterpret_cast<FullBarrier&>(barrier);
  }

  // The next block that nobody has taken or transposed before. Off a counter: whoever waits for a block
  // then waits for a CTA that runs.
  __device__ WalkedBlock next() {
    for (;;) {
      std::uint32_t index = 0;
      if (threadIdx.x % 32 == 0) index = atomicAdd(keys_.taken, 1);
      const WalkedBlock found = walk_.find(static_cast<int>(__shfl_sync(0xffffffff, index, 0)));
      if (found.sequence < 0 || !keys_.before.has(found.sequence, found.head)) return found;
    }
  }
  __device__ typename Source::BlockPart find(const WalkedBlock& at) const {
    const PrefillTile tile{
        .sequence = max(at.sequence, 0), .end_key = at.end_key, .kv_head = at.head};
    return Source(keys_.pages, 0).find(tile, at.sequence < 0 ? -1 : at.block);
  }

  // Into the place of the block before, which TMA has read.
  __device__ void load(const typename Source::BlockPart& part) const {
    if (threadIdx.x % 32 == 0) {
      wait_stored_bytes_read<0>();
      full().arrive_and_expect_tx(PrefillShared<kConfig>::kCopiedValueBytes);
    }
    __syncwarp();
    Source(keys_.pages, 0).load_values(part, stage(), full());
    Source(keys_.pages, 1).load_values(part, stage(), full());
  }
  __device__ void transpose(const WalkedBlock& at) {
    full().wait(phase_);
    phase_ ^= 1;
    const int num_keys = at.end_key - at.block * kWalkedKeys;
    if (num_keys < kWalkedKeys) {
      zero_rows(stage(), num_keys, 1);
      __syncwarp();
    }
    BlockTranspose(stage(), 0).run();
    BlockTranspose(stage(), 1).run();
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      cute::SM90_TMA_STORE_2D::copy(&keys_.values, stage(), 0,
                                    keys_.row_of(at.sequence, at.head, at.block));
      commit_no_bytes();
    }
    __syncwarp();
  }
  // That the block before is there. By the thread that has seen it written.
  __device__ void tell() {
    if (told_ == nullptr || threadIdx.x % 32 != 0) return;
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.global;" ::: "memory");
    add_released(told_, 1);
  }

  const TransposedKeys& keys_;
  BlockWalk walk_;
  std::uint32_t* told_ = nullptr;  // the counter of the block that is on its way
  unsigned phase_ = 0;
};

// The warp that brings transposed V to the consumers, a block in one part, when all of its head is there.

template <PrefillConfig kConfig> class TransposedLoad {
 public:
  using Shared = PrefillShared<kConfig>;

  __device__ TransposedLoad(const PrefillParams& params, const TransposedKeys& keys, Shared& shared)
      : params_(params), keys_(keys), shared_(shared) {}

  __device__ void run() {
    for (PrefillTile tile = next_tile(); tile.sequence >= 0; tile = next_tile()) {
      await_head(tile);
      for (int block = tile.end_block - 1; block >= tile.first_block; --block) {
        load(keys_.row_of(tile.sequence, tile.kv_head, block));
      }
    }
  }

 private:
  // Also in place of the warp that transposes, which needs no tiles.
  __device__ PrefillTile next_tile() {
    const int stage = tile_at_.stage;
    const PrefillTile tile = shared_.take_tile(tile_at_);
    shared_.tile_ring.empty[stage].arrive();
    return tile;
  }

  __device__ void await_head(const PrefillTile& tile) const {
    if (keys_.before.has(tile.sequence, tile.kv_head)) return;
    const SeenBlocks blocks(params_.mask, tile.position, tile.tokens, keys_.blocks);
    const std::uint32_t* done = keys_.done + tile.sequence * keys_.kv_heads + tile.kv_head;
    while (load_acquired(done) < static_cast<std::uint32_t>(blocks.count())) {
    }
    asm volatile("fence.proxy.async.global;" ::: "memory");
  }
  __device__ void load(int row) {
    shared_.value_ring.wait_empty(at_);
    if (threadIdx.x % 32 == 0) {
      FullBarrier& full = shared_.value_ring.full[at_.stage];
      full.arrive_and_expect_tx(Shared::kCopiedValueBytes);
      load_box({.map = &keys_.values,
                .shared = shared_.values[at_.stage],
                .full = &full,
                .hint = L2Hint::EVICT_LAST},
               0, row);
    }
    __syncwarp();
    at_.advance();
  }

  const PrefillParams& params_;
  const TransposedKeys& keys_;
  Shared& shared_;
  RingPosition<kConfig.value_stages> at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

template <PrefillConfig kConfig>
__device__ inline void transpose_and_attend(const PrefillParams& params,
                                            const TransposedKeys& keys) {
  using Source = PagedSource<kConfig>;
  run_block<kConfig, Source, Fp8Attend<kConfig, Transpose::before>>(
      params, keys.pages, [&](PrefillShared<kConfig>& shared) {
        if (warp_in_block() == 3) {
          const bool has_all = keys.before.has(params.batch - 1, keys.kv_heads - 1);
          if (!has_all) TransposeAhead<kConfig>(params, keys).run();
        } else if (warp_in_block() == 2) {
          TransposedLoad<kConfig>(params, keys, shared).run();
        } else {
          PrefillLoad<kConfig, Source> load(params, keys.pages, shared, warp_in_block());
          if (warp_in_block() == 0) {
            load.lead();
          } else {
            load.load_keys();
          }
        }
      });
}

template <typename Variant>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    fp8_kernel(const __grid_constant__ PrefillParams params,
               const __grid_constant__ TransposedKeys keys) {
  transpose_and_attend<Variant::kConfig>(params, keys);
}

template <typename Variant>
void launch_fp8(const PrefillParams& params, const TransposedKeys& keys,
                const PrefillLaunch& where) {
  LaunchShape shape = prefill_shape<Variant::kConfig>(where);
  shape.overlaps_previous = true;  // that one transposes V of the first heads
  launch(fp8_kernel<Variant>, shape, where.stream, params, keys);
}

// The prefill kernel with products of e4m3 that transposes V itself, whatever its keys come from, and
// its launch over the pages.

template <typename Variant>
void launch_transposing(const PrefillParams& params, const PagedKeys& keys,
                        const PrefillLaunch& where) {
  using Source = PagedSource<Variant::kConfig>;
  launch(transposing_kernel<Variant, Source>, prefill_shape<Variant::kConfig>(where), where.stream,
         params, keys);
}

}  // namespace quire::cuda::sm90::flash_attention
