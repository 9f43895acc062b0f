// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/launch_cooperative.h"
#include "cuda/sm90/mla_indexer/group/kernel.cuh"
#include "cuda/sm90/mla_indexer/group/launch_group.h"
#include "cuda/sm90/mla_indexer/group/variants.h"

namespace quire::cuda::sm90::mla_indexer {

template <typename Variant>
void launch_index_group(const IndexParams& params, const GroupBoard& board, const GroupShape& shape,
                        cudaStream_t stream) {
  constexpr int kSharedOfABlock = 227 * 1024;
  using Shared = GroupShared<Variant::kConfig>;
  static_assert(sizeof(Shared) + kMaxGroupKeys * sizeof(std::uint32_t) <= kSharedOfABlock);
  static_assert(kMaxGroupKeys <= 32 * GroupSelectShared::kWindowWords);
  launch_cooperative(index_group_kernel<Variant>,
                     {.grid = dim3(static_cast<unsigned>(shape.parts)),
                      .block = dim3(kGroupThreads),
                      .shared_bytes = sizeof(Shared) + shape.capacity * sizeof(std::uint32_t)},
                     stream, params, board, shape.max_tiles, shape.capacity);
}

}  // namespace quire::cuda::sm90::mla_indexer
