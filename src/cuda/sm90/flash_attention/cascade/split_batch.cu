// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/cascade/split_batch.h"

#include <algorithm>

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::sm90::flash_attention {
namespace {

constexpr int kThreads = 128;

__device__ void copy_page(const PrefixTable& prefix, int sequence, int column) {
  if (prefix.pages == nullptr) return;
  prefix.pages[column] = PageCursor(prefix.table, sequence).page(column);
}

__global__ void __launch_bounds__(kThreads) split_batch(const __grid_constant__ BatchSplit split) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  // A sequence shorter than the prefix has no query (or breaks the op's contract): it has no own key.
  if (index < split.batch) {
    const std::uint32_t cached = split.cache_lengths[index];
    split.own_lengths[index] = cached > split.prefix_keys ? cached - split.prefix_keys : 0;
  }
  // Of the first sequence with new tokens: nothing is known of the pages of the others.
  if (index < split.prefix_pages) {
    const int sequence = split.row_offsets[1] > 0
                             ? 0
                             : sequence_of(split.row_offsets, static_cast<int>(split.batch), 0);
    copy_page(split.keys, sequence, static_cast<int>(index));
    copy_page(split.scales, sequence, static_cast<int>(index));
  }
  if (index == 0) {
    const std::uint32_t tokens = split.row_offsets[split.batch];
    split.prefix_offsets[0] = 0;
    split.prefix_offsets[1] = tokens;
    split.prefix_length[0] = split.prefix_keys - tokens;
  }
}

}  // namespace

void launch_split_batch(const BatchSplit& split, cudaStream_t stream) {
  launch(split_batch,
         {.grid = dim3(num_blocks(std::max(split.batch, split.prefix_pages), kThreads)),
          .block = dim3(kThreads)},
         stream, split);
}

}  // namespace quire::cuda::sm90::flash_attention
