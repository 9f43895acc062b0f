// SPDX-License-Identifier: Apache-2.0
// Boxes of global memory into shared memory by the copy engine. Called by one thread.
#pragma once

#include <cstdint>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/runtime/tensor_map.h"

namespace quire::cuda {

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

}  // namespace quire::cuda
