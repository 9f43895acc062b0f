// SPDX-License-Identifier: Apache-2.0
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/mla_prefill/candidates.h"
#include "ops/mla_prefill/chunk_check.h"

namespace quire {

Plan supports(const MlaPrefillArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void mla_prefill(const MlaPrefillArgs& args, const Context& context) {
  ops::run_planned(ops::mla_prefill_candidates(), supports(args, context), args, context);
}

Plan supports(const MlaPrefillPlanArgs& args, const Context& context) {
  validate(args);
  return ops::choose("mla_prefill_plan", ops::mla_prefill_plan_candidates(),
                     args.row_offsets.device, context);
}

void mla_prefill_plan(const MlaPrefillPlanArgs& args, const Context& context) {
  ops::run_planned(ops::mla_prefill_plan_candidates(), supports(args, context), args, context);
}

std::int64_t mla_prefill_num_chunks(const TensorView& row_offsets, const PagedKVCache& cache,
                                    std::int64_t buffer_tokens, std::int64_t decode_tokens) {
  ops::Arguments check("mla_prefill_num_chunks");
  ops::check_batch(check, cache, {.kind = ops::CacheKind::mla}, row_offsets, std::nullopt);
  check.is_at_least("buffer_tokens", buffer_tokens, 1);
  return ops::is_on_host(row_offsets)
             ? ops::count_chunks(cache, row_offsets, buffer_tokens, decode_tokens)
             : ops::most_chunks(cache, buffer_tokens);
}

}  // namespace quire
