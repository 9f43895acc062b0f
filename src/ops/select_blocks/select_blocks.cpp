// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/select_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "cpu/select_blocks/select_blocks.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/attention_check.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/memory_span.h"
#include "reference/select_blocks.h"

namespace quire {
namespace {

using ops::Arguments;

void check_heads(const Arguments& check, const TensorView& q, const ops::PagedBatch& batch) {
  if (q.shape[1] % batch.cache.num_kv_heads != 0) {
    check.fail("q", fmt::format("with a multiple of {} heads", batch.cache.num_kv_heads),
               q.describe());
  }
  if (q.shape[2] != batch.head_dim()) {
    check.fail("q", fmt::format("{} wide like the cache", batch.head_dim()), q.describe());
  }
}

void check_blocks(Arguments& check, const SelectBlocksArgs& args) {
  check.is_at_least("block_size", args.block_size, 1);
  check.is_at_least("first_blocks", args.first_blocks, 0);
  check.is_at_least("local_blocks", args.local_blocks, 0);
  check.tensor("out", args.out)
      .is(DType::i32, {args.q.shape[0], args.q.shape[1], "max_blocks"})
      .has_full_rows()
      .has_dense_rows()
      .is_written();
  const std::int64_t max_blocks = args.out.shape[2];
  if (args.first_blocks > max_blocks || args.local_blocks > max_blocks - args.first_blocks) {
    check.fail("out",
               fmt::format("of {} first and {} local blocks or more", args.first_blocks,
                           args.local_blocks),
               args.out.describe());
  }
}

const ops::Dispatch<SelectBlocksProblem, SelectBlocksArgs>& dispatch() {
  static const ops::Dispatch<SelectBlocksProblem, SelectBlocksArgs> table(
      "select_blocks",
      {
          .cuda = cuda::select_blocks_kernels(),
          .run_on_cpu = cpu::select_blocks,
          .run_reference = [](const SelectBlocksArgs& args) { reference::select_blocks(args); },
      });
  return table;
}

}  // namespace

SelectBlocksProblem validate(const SelectBlocksArgs& args) {
  Arguments check("select_blocks");
  check.tensor("q", args.q)
      .is(ops::kActivations, {"tokens", "heads", "head_dim"})
      .has_full_rows()
      .has_dense_rows();
  const ops::PagedBatch batch =
      ops::check_batch(check, args.cache, {.layer = args.layer}, args.row_offsets, args.q.shape[0]);
  check_heads(check, args.q, batch);
  ops::check_causal_or_full(check, args.mask);
  check_blocks(check, args);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .heads = args.q.shape[1],
          .head_dim = args.q.shape[2],
          .q_dtype = args.q.dtype,
          .block_size = args.block_size,
          .max_blocks = args.out.shape[2],
          .first_blocks = args.first_blocks,
          .local_blocks = args.local_blocks,
          .mask = args.mask.summary(),
          .alignment = std::min(ops::row_alignment(args.q), ops::cache_alignment(args.cache))};
}

Prepared<SelectBlocksProblem> prepare(const SelectBlocksProblem& problem, const Context& context) {
  return dispatch().prepare("select_blocks", problem, context);
}

Plan plan(const SelectBlocksProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const SelectBlocksArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<SelectBlocksProblem>& prepared, const SelectBlocksArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void select_blocks(const SelectBlocksArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
