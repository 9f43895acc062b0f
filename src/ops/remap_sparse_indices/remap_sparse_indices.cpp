// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "cpu/remap_sparse_indices/remap_sparse_indices.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/memory_span.h"
#include "quire/ops/remap_sparse_indices.h"
#include "reference/remap_sparse_indices.h"

namespace quire {
namespace {

const ops::Dispatch<RemapSparseIndicesProblem, RemapSparseIndicesArgs>& dispatch() {
  static const ops::Dispatch<RemapSparseIndicesProblem, RemapSparseIndicesArgs> table(
      "remap_sparse_indices",
      {
          .cuda = cuda::remap_sparse_indices_kernels(),
          .run_on_cpu = cpu::remap_sparse_indices,
          .run_reference =
              [](const RemapSparseIndicesArgs& args) { reference::remap_sparse_indices(args); },
      });
  return table;
}

}  // namespace

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

Prepared<RemapSparseIndicesProblem> prepare(const RemapSparseIndicesProblem& problem,
                                            const Context& context) {
  return dispatch().prepare("remap_sparse_indices", problem, context);
}

Plan plan(const RemapSparseIndicesProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const RemapSparseIndicesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<RemapSparseIndicesProblem>& prepared, const RemapSparseIndicesArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void remap_sparse_indices(const RemapSparseIndicesArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
