// SPDX-License-Identifier: Apache-2.0
// The tokens that a block of launch_code() works on, and where their rows and scales go.
#pragma once

#include "cuda/any/store/params.h"
#include "cuda/common/rows/token_finder.cuh"

namespace quire::cuda::any::store {

// Where a token's rows and scales begin; null: nowhere.
struct alignas(16) CodeTarget {
  std::byte* row;
  std::byte* scale;
};

// What a block takes at a time: neighbouring tokens.
struct CodeChunk {
  std::int64_t first_token;
  unsigned tokens;  // 0: past the last chunk

  __device__ CodeChunk(const StoreParams& params, const CodeLayout& layout, unsigned index) {
    first_token = std::int64_t{index} * layout.block_tokens;
    const std::int64_t left = params.tokens - first_token;
    tokens = left <= 0                    ? 0
             : left < layout.block_tokens ? static_cast<unsigned>(left)
                                          : layout.block_tokens;
  }
};

// A block's chunks: every gridDim.x-th, in groups whose places are looked up at once.
struct CodeGroups {
  static constexpr unsigned kLanes = 32;
  static constexpr unsigned kMostTokens = 64;  // of a chunk

  unsigned chunks;  // of a group

  __device__ explicit CodeGroups(const CodeLayout& layout)
      : chunks(layout.block_tokens < kLanes ? kLanes / layout.block_tokens : 1) {}
};

// By one warp: a lane for each of up to 32 tokens of a group's chunks, the first of which is `index`.
template <typename HasScales>
__device__ inline void find_targets(const StoreParams& params, const CodeLayout& layout,
                                    const TokenFinder& finder, unsigned index, CodeTarget* targets,
                                    HasScales has_scales) {
  const unsigned group_tokens = CodeGroups(layout).chunks * layout.block_tokens;
  for (unsigned first = 0; first < group_tokens; first += CodeGroups::kLanes) {
    const unsigned own = first + threadIdx.x % CodeGroups::kLanes;
    const unsigned chunk = own / layout.block_tokens;
    const std::int64_t token = std::int64_t{index + chunk * gridDim.x} * layout.block_tokens +
                               (own - chunk * layout.block_tokens);
    const TokenPlace place = finder.find(token);
    if (own >= group_tokens) continue;
    CodeTarget target{first_row(params.view, place), nullptr};
    if (layout.scales_are_in_row) {
      target.scale = target.row;
    } else if (has_scales()) {
      target.scale = first_scale(params.view, place);
    }
    targets[own] = target;
  }
}

}  // namespace quire::cuda::any::store
