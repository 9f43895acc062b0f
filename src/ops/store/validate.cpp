// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "ops/argument.h"
#include "ops/cache_check.h"
#include "quire/ops/store.h"

namespace quire {
namespace {

using ops::Arguments;

ops::CacheUse writes_to(std::int64_t layer, KvSide side) {
  return {.layer = layer,
          .sides = side == KvSide::key ? ops::CacheSides::key : ops::CacheSides::value,
          .access = ops::CacheAccess::write};
}

constexpr DType kRowTypes[] = {DType::f32,      DType::f16,      DType::bf16,
                               DType::fp8_e4m3, DType::fp8_e5m2, DType::i8};

// Numbers to be rounded or quantized, or codes in the cache's own dtype.
void check_rows(Arguments& check, const StoreArgs& args, const ops::PagedBatch& batch) {
  std::vector<DType> dtypes(std::begin(ops::kActivations), std::end(ops::kActivations));
  const RowFormat& format = batch.cache.row_format;
  const DType own = format.parts[0].dtype;
  if (format.is_uniform() && (is_fp8(own) || own == DType::i8)) dtypes.push_back(own);
  check.tensor("x", args.x)
      .is(dtypes, {"tokens", batch.cache.num_kv_heads, batch.head_dim()})
      .has_dense_rows();
}

}  // namespace

StoreProblem validate(const StoreArgs& args) {
  Arguments check("store");
  check.tensor("x", args.x).is(kRowTypes, {"tokens", "kv_heads", "head_dim"});
  const ops::PagedBatch batch = ops::check_batch(
      check, args.cache, writes_to(args.layer, args.side), args.row_offsets, args.x.shape[0]);
  check_rows(check, args, batch);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .side = args.side,
          .x_dtype = args.x.dtype,
          .scales_only = false};
}

StoreProblem validate(const StoreScalesArgs& args) {
  Arguments check("store_scales");
  check.tensor("scales", args.scales).is(ops::kActivations, {"tokens", "kv_heads", "slots"});
  const ops::PagedBatch batch = ops::check_batch(
      check, args.cache, writes_to(args.layer, args.side), args.row_offsets, args.scales.shape[0]);
  if (!args.cache.scales.has_value()) check.fail("cache.scales", "given", "none");
  if (args.cache.key(args.layer).scales.is_static()) {
    check.fail("cache.scales", "one scale per token: static scales are never written",
               "strides of 0");
  }
  check.tensor("scales", args.scales)
      .is(ops::kActivations,
          {"tokens", batch.cache.num_kv_heads, batch.cache.row_format.plane_slots()})
      .is_finite();
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .side = args.side,
          .x_dtype = args.scales.dtype,
          .scales_only = true};
}

}  // namespace quire
