// SPDX-License-Identifier: Apache-2.0
#include "cpu/remap_sparse_indices/remap_sparse_indices.h"

#include "cpu/remap_sparse_indices/kernels.h"
#include "cpu/rows/row_blocks.h"

namespace quire::cpu {

void remap_sparse_indices(const RemapSparseIndicesArgs& args, const Context& context,
                          Target target) {
  const PagedKVCache& cache = args.cache;
  const auto* offsets = args.row_offsets.as<const std::uint32_t>();
  const PageCursor pages = cache.pages();
  const auto* indices = args.indices.as<const std::int32_t>();
  auto* out = args.out.as<std::int32_t>();
  const RemapKernels& kernels = remap_kernels(target);
  const std::int64_t top_k = args.indices.shape[1];
  const auto remap_token = [&](std::int64_t token, std::int64_t sequence) {
    kernels.remap({.pages = pages.of_sequence(sequence),
                   .positions = indices + token * args.indices.strides[0],
                   .stride = args.indices.strides[1],
                   .count = top_k,
                   .out = out + token * args.out.strides[0],
                   .out_stride = args.out.strides[1]});
  };
  for_row_blocks(args.indices.shape[0], top_k * 8, context, [&](RowBlock block, int) {
    const std::uint32_t* end = offsets + cache.batch() + 1;
    std::int64_t sequence = std::upper_bound(offsets, end, block.first) - offsets - 1;
    for (std::int64_t token = block.first; token < block.last; ++token) {
      while (token >= offsets[sequence + 1]) ++sequence;
      remap_token(token, sequence);
    }
  });
}

}  // namespace quire::cpu
