// SPDX-License-Identifier: Apache-2.0
// TMA: boxes of tensor maps and runs of bytes between global and shared memory. Called by one thread.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/arch/util.hpp>

#include <cstddef>
#include <cstdint>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/runtime/tensor_map.h"

namespace quire::cuda {

// Boxes of global memory into shared memory by TMA. Called by one thread.

using L2Hint = cute::TMA::CacheHintSm90;

struct BoxLoad {
  const TensorMap* map;
  void* shared;
  FullBarrier* full;
  L2Hint hint = L2Hint::EVICT_NORMAL;

  __device__ std::uint64_t* barrier() const { return reinterpret_cast<std::uint64_t*>(full); }
};

__device__ inline void prefetch(const TensorMap& map) {
  cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&map));
}

// The box at (column, row) of a matrix.
__device__ inline void load_box(const BoxLoad& load, int column, int row) {
  cute::SM90_TMA_LOAD_2D::copy(load.map, load.barrier(), static_cast<std::uint64_t>(load.hint),
                               load.shared, column, row);
}
// The same for every block in `blocks` (a bit per rank), at the same place of its shared memory.
__device__ inline void load_box_for(const BoxLoad& load, int column, int row,
                                    std::uint16_t blocks) {
  cute::SM90_TMA_LOAD_MULTICAST_2D::copy(load.map, load.barrier(), blocks,
                                         static_cast<std::uint64_t>(load.hint), load.shared, column,
                                         row);
}

// The box at (column, row, plane) and at (column, row, plane, page).
__device__ inline void load_box(const BoxLoad& load, int column, int row, int plane) {
  cute::SM90_TMA_LOAD_3D::copy(load.map, load.barrier(), static_cast<std::uint64_t>(load.hint),
                               load.shared, column, row, plane);
}
__device__ inline void load_box(const BoxLoad& load, int column, int row, int plane, int page) {
  cute::SM90_TMA_LOAD_4D::copy(load.map, load.barrier(), static_cast<std::uint64_t>(load.hint),
                               load.shared, column, row, plane, page);
}

__device__ inline void load_box_for(const BoxLoad& load, int column, int row, int plane, int page,
                                    std::uint16_t blocks) {
  cute::SM90_TMA_LOAD_MULTICAST_4D::copy(load.map, load.barrier(), blocks,
                                         static_cast<std::uint64_t>(load.hint), load.shared, column,
                                         row, plane, page);
}

// The box that begins at the first row of group `group` of a quad-ordered map (row_order.h).
__device__ inline void load_groups(const BoxLoad& load, int column, int group) {
  cute::SM90_TMA_LOAD_5D::copy(load.map, load.barrier(), static_cast<std::uint64_t>(load.hint),
                               load.shared, column, 0, 0, 0, group);
}
__device__ inline void load_groups(const BoxLoad& load, int column, int group,
                                   std::uint16_t blocks) {
  cute::SM90_TMA_LOAD_MULTICAST_5D::copy(load.map, load.barrier(), blocks,
                                         static_cast<std::uint64_t>(load.hint), load.shared, column,
                                         0, 0, 0, group);
}

// A run of bytes into shared memory by TMA. Called by one thread.

struct BytesLoad {
  const std::byte* from;
  void* shared;
  int bytes;
  FullBarrier* full;
  L2Hint hint;
};

// Addresses and size are multiples of 16.
__device__ inline void load_bytes(const BytesLoad& load) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(cute::cast_smem_ptr_to_uint(load.shared)),
      "l"(load.from), "r"(load.bytes), "r"(cute::cast_smem_ptr_to_uint(load.full)),
      "l"(static_cast<std::uint64_t>(load.hint))
      : "memory");
}

// Runs of bytes out of shared memory by TMA. Called by one thread.

// Addresses and size are multiples of 16. Threads that wrote the shared memory did a fence_view_async_shared() and
// met this one at a barrier.
__device__ inline void store_bytes(std::byte* to, const void* shared, int bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(cute::cast_smem_ptr_to_uint(shared)), "r"(bytes)
      : "memory");
}
// In place of a store, so that threads of a warp count alike.
__device__ inline void commit_no_bytes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until the shared memory of this thread's stores, but for the last kLast, has been read.
template <int kLast> __device__ inline void wait_stored_bytes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLast) : "memory");
}

}  // namespace quire::cuda
