// SPDX-License-Identifier: Apache-2.0
#include "reference/remap_sparse_indices.h"

#include "reference/ragged.h"

namespace quire::reference {
namespace {

constexpr std::int32_t kAbsent = -1;

std::int32_t physical_row(const PagedKVCache& cache, std::int64_t sequence, std::int32_t position) {
  if (position < 0) return position;
  const std::int64_t column = position / cache.page_size();
  if (column >= cache.max_pages()) return kAbsent;
  const TensorView& table = cache.page_table;
  const std::int64_t page = table.as<const std::uint32_t>()[table.offset({sequence, column})];
  if (page >= cache.num_pages()) return kAbsent;
  return static_cast<std::int32_t>(page * cache.page_size() + position % cache.page_size());
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
