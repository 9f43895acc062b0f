// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/rms_norm/candidates.h"

namespace quire {
namespace {

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

}  // namespace

RmsNormProblem validate(const RmsNormArgs& args) {
  ops::Arguments check(ops::rms_norm_name(args.side));
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

}  // namespace quire
