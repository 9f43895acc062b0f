// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/memory_span.h"
#include "quire/ops/remap_sparse_indices.h"

namespace quire {

RemapSparseIndicesProblem validate(const RemapSparseIndicesArgs& args) {
  ops::Arguments check("remap_sparse_indices");
  check.tensor("indices", args.indices).is(DType::i32, {"tokens", "top_k"});
  const std::int64_t tokens = args.indices.shape[0];
  const std::int64_t top_k = args.indices.shape[1];
  const ops::PagedBatch batch = ops::check_batch(check, args.cache, {}, args.row_offsets, tokens);
  const std::int64_t rows = ops::saturating_product(batch.cache.num_pages, batch.cache.page_size);
  if (rows > std::numeric_limits<std::int32_t>::max()) {
    check.fail("cache.blocks", "of fewer than 2^31 rows, which the i32 indices can name",
               std::to_string(rows) + " rows");
  }
  check.tensor("out", args.out).is(DType::i32, {tokens, top_k}).is_written();
  check.outputs_do_not_overlap({{"out", "indices"}});
  return {.device = check.device(), .ragged = batch.ragged, .cache = batch.cache, .top_k = top_k};
}

}  // namespace quire
