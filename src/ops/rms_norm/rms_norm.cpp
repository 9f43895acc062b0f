// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cpu/rms_norm/rms_norm.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "quire/ops/rms_norm.h"
#include "reference/rms_norm.h"

namespace quire {
namespace {

// One op in two names: what errors and plans call it.
constexpr std::string_view name_of(KvSide side) {
  return side == KvSide::key ? "rms_norm_key" : "rms_norm_value";
}

void check_gamma(ops::Arguments& check, const RmsNormArgs& args, const ops::PagedBatch& batch) {
  if (!args.per_head) {
    check.tensor("gamma", args.gamma)
        .is(ops::kActivations, {batch.cache.num_kv_heads * batch.head_dim()})
        .has_dense_rows();
    return;
  }
  check.tensor("gamma", args.gamma).is(ops::kActivations, {"columns"}).has_dense_rows();
  if (args.gamma.shape[0] < 1 || args.gamma.shape[0] > batch.head_dim()) {
    check.fail("gamma", fmt::format("1 to {} long", batch.head_dim()), args.gamma.describe());
  }
}

const ops::Dispatch<RmsNormProblem, RmsNormArgs>& dispatch() {
  static const ops::Dispatch<RmsNormProblem, RmsNormArgs> table(
      "rms_norm", {
                      .cuda = cuda::rms_norm_kernels(),
                      .run_on_cpu = cpu::rms_norm,
                      .run_reference = [](const RmsNormArgs& args) { reference::rms_norm(args); },
                  });
  return table;
}

void run_side(RmsNormArgs& args, KvSide side, const Context& context) {
  args.side = side;
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace

RmsNormProblem validate(const RmsNormArgs& args) {
  ops::Arguments check(name_of(args.side));
  const ops::CacheUse use{
      .layer = args.layer,
      .sides = args.side == KvSide::key ? ops::CacheSides::key : ops::CacheSides::value,
      .access = ops::CacheAccess::write};
  const ops::PagedBatch batch =
      ops::check_batch(check, args.cache, use, args.row_offsets, std::nullopt);
  check_gamma(check, args, batch);
  const std::int64_t changed = args.per_head ? args.gamma.shape[0] : batch.head_dim();
  ops::check_unscaled(check, args.cache, 0, changed);
  check.is_positive("epsilon", args.epsilon);
  check.is_finite("weight_offset", args.weight_offset);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .side = args.side,
          .columns = args.gamma.shape[0],
          .gamma_dtype = args.gamma.dtype,
          .per_head = args.per_head};
}

Prepared<RmsNormProblem> prepare(const RmsNormProblem& problem, const Context& context) {
  return dispatch().prepare(name_of(problem.side), problem, context);
}

Plan plan(const RmsNormProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const RmsNormArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<RmsNormProblem>& prepared, const RmsNormArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void rms_norm_key(RmsNormArgs args, const Context& context) {
  run_side(args, KvSide::key, context);
}

void rms_norm_value(RmsNormArgs args, const Context& context) {
  run_side(args, KvSide::value, context);
}

}  // namespace quire
