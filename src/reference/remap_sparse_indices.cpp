// SPDX-License-Identifier: Apache-2.0
#include "reference/remap_sparse_indices.h"

#include "quire/sparse_index.h"
#include "reference/ragged.h"

namespace quire::reference {
namespace {

std::int32_t physical_row(const PagedKVCache& cache, std::int64_t sequence, std::int32_t position) {
  if (position < 0) return position;
  return encode_sparse_index(cache.pages().find(sequence, position), cache.page_size());
}

}  // namespace

void remap_sparse_indices(const RemapSparseIndicesArgs& args) {
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t slot = 0; slot < args.indices.shape[1]; ++slot) {
      const std::int32_t position =
          args.indices.as<const std::int32_t>()[args.indices.offset({token.index, slot})];
      args.out.as<std::int32_t>()[args.out.offset({token.index, slot})] =
          physical_row(args.cache, token.sequence, position);
    }
  }
}

}  // namespace quire::reference
