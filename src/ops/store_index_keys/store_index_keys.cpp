// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/store_index_keys.h"
#include "cpu/index_rows/index_rows.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/index_row_check.h"
#include "reference/index_rows.h"

#include <fmt/format.h>

namespace quire {
namespace {

using ops::Arguments;

void check_norm(Arguments& check, const StoreIndexKeysArgs& args, std::int64_t head_dim) {
  if (args.norm_weight.has_value() != args.norm_bias.has_value()) {
    const bool has_weight = args.norm_weight.has_value();
    check.fail(has_weight ? "norm_bias" : "norm_weight",
               has_weight ? "given together with norm_weight" : "given together with norm_bias",
               "none");
  }
  if (!args.norm_weight) return;
  check.tensor("norm_weight", *args.norm_weight).is(ops::kActivations, {head_dim}).has_dense_rows();
  check.tensor("norm_bias", *args.norm_bias).is(ops::kActivations, {head_dim}).has_dense_rows();
  check.is_positive("epsilon", args.epsilon);
}

void check_written_scales(const Arguments& check, const StoreIndexKeysArgs& args) {
  if (!args.cache.scales || !args.cache.key(args.layer).scales.is_static()) return;
  check.fail("cache.scales", "one scale per token: static scales are never written",
             args.cache.scales->describe());
}

const ops::Dispatch<StoreIndexKeysProblem, StoreIndexKeysArgs>& dispatch() {
  static const ops::Dispatch<StoreIndexKeysProblem, StoreIndexKeysArgs> table(
      "store_index_keys",
      {
          .cuda = cuda::store_index_keys_kernels(),
          .run_on_cpu = cpu::store_index_keys,
          .run_reference =
              [](const StoreIndexKeysArgs& args) { reference::store_index_keys(args); },
      });
  return table;
}

}  // namespace

StoreIndexKeysProblem validate(const StoreIndexKeysArgs& args) {
  Arguments check("store_index_keys");
  check.tensor("x", args.x)
      .is(ops::kActivations, {"tokens", "head_dim"})
      .has_full_rows()
      .has_dense_rows();
  const std::int64_t head_dim = args.x.shape[1];
  const ops::PagedBatch batch = ops::check_batch(
      check, args.cache,
      {.layer = args.layer, .access = ops::CacheAccess::write, .kind = ops::CacheKind::mla},
      args.row_offsets, args.x.shape[0]);
  ops::check_index_keys(check, batch.cache.row_format);
  check_written_scales(check, args);
  if (head_dim != batch.head_dim()) {
    check.fail("x", fmt::format("{} wide like the cache", batch.head_dim()), args.x.describe());
  }
  check_norm(check, args, head_dim);
  const std::int64_t rope_dim = ops::check_index_row(
      check, {.freqs_cis = args.freqs_cis, .hadamard = args.hadamard}, head_dim, batch);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .head_dim = head_dim,
          .rope_dim = rope_dim,
          .x_dtype = args.x.dtype,
          .has_norm = args.norm_weight.has_value(),
          .interleaved = args.interleaved,
          .hadamard = args.hadamard,
          .scale_rounding = args.scale_rounding};
}

Prepared<StoreIndexKeysProblem> prepare(const StoreIndexKeysProblem& problem,
                                        const Context& context) {
  return dispatch().prepare("store_index_keys", problem, context);
}

Plan plan(const StoreIndexKeysProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const StoreIndexKeysArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<StoreIndexKeysProblem>& prepared, const StoreIndexKeysArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void store_index_keys(const StoreIndexKeysArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
