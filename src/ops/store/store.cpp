// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <span>

#include "cpu/store/store.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "quire/ops/store.h"
#include "reference/store.h"

namespace quire {
namespace {

using ops::Arguments;

ops::CacheUse writes_to(std::int64_t layer, KvSide side) {
  return {.layer = layer,
          .sides = side == KvSide::key ? ops::CacheSides::key : ops::CacheSides::value,
          .access = ops::CacheAccess::write};
}

// The batch, by slots or by lengths.
ops::PagedBatch check_places(Arguments& check, const StoreArgs& args) {
  ops::CacheUse use = writes_to(args.layer, args.side);
  if (args.value.has_value()) use.sides = ops::CacheSides::all;
  const std::int64_t tokens = args.x.shape[0];
  if (!args.slots.has_value()) {
    if (args.row_offsets.rank == 0 && args.row_offsets.data == nullptr) {
      check.fail("row_offsets", "given: u32 [batch + 1], or slots instead", "none");
    }
    return ops::check_batch(check, args.cache, use, args.row_offsets, tokens);
  }
  use.rows = ops::CacheRows::slotted;
  return ops::check_slots(check, args.cache, use, *args.slots, tokens);
}

constexpr DType kRowTypes[] = {DType::f32,      DType::f16,      DType::bf16,
                               DType::fp8_e4m3, DType::fp8_e5m2, DType::i8};

// Numbers to be rounded or quantized, or codes in the cache's own dtype.
void check_rows(Arguments& check, const StoreArgs& args, const ops::PagedBatch& batch) {
  const RowFormat& format = batch.cache.row_format;
  const DType own = format.parts[0].dtype;
  const std::array dtypes{DType::f32, DType::f16, DType::bf16, own};
  const bool has_codes = format.is_uniform() && (is_fp8(own) || own == DType::i8);
  check.tensor("x", args.x)
      .is(std::span(dtypes).first(has_codes ? 4 : 3),
          {"tokens", batch.cache.num_kv_heads, batch.head_dim()})
      .has_dense_rows();
}

// The other half of a pair: as x in all but its strides.
void check_value(Arguments& check, const StoreArgs& args, const ops::PagedBatch& batch) {
  if (!args.value.has_value()) return;
  if (args.side != KvSide::key) {
    check.fail("side", "key where 'value' is given: x goes to the keys", "value");
  }
  if (batch.cache.is_mla) {
    check.fail("cache.blocks", "a cache with values [num_pages, 2, …]",
               args.cache.blocks.describe());
  }
  check.tensor("value", *args.value)
      .is(args.x.dtype, {args.x.shape[0], batch.cache.num_kv_heads, batch.head_dim()})
      .has_dense_rows();
}

const ops::Dispatch<StoreProblem, StoreArgs>& dispatch_rows() {
  static const ops::Dispatch<StoreProblem, StoreArgs> table(
      "store", {
                   .cuda = cuda::store_kernels(),
                   .run_on_cpu = cpu::store,
                   .run_reference = [](const StoreArgs& args) { reference::store(args); },
               });
  return table;
}

const ops::Dispatch<StoreProblem, StoreScalesArgs>& dispatch_scales() {
  static const ops::Dispatch<StoreProblem, StoreScalesArgs> table(
      "store_scales",
      {
          .cuda = cuda::store_scales_kernels(),
          .run_on_cpu = cpu::store_scales,
          .run_reference = [](const StoreScalesArgs& args) { reference::store_scales(args); },
      });
  return table;
}

}  // namespace

StoreProblem validate(const StoreArgs& args) {
  Arguments check("store");
  check.tensor("x", args.x).is(kRowTypes, {"tokens", "kv_heads", "head_dim"});
  const ops::PagedBatch batch = check_places(check, args);
  check_rows(check, args, batch);
  check_value(check, args, batch);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .side = args.side,
          .x_dtype = args.x.dtype,
          .scales_only = false,
          .has_value = args.value.has_value(),
          .by_slots = args.slots.has_value()};
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

Prepared<StoreProblem> prepare(const StoreProblem& problem, const Context& context) {
  return problem.scales_only ? dispatch_scales().prepare("store_scales", problem, context)
                             : dispatch_rows().prepare("store", problem, context);
}

Plan plan(const StoreProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const StoreArgs& args, const Context& context) {
  return plan(validate(args), context);
}

Plan supports(const StoreScalesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<StoreProblem>& prepared, const StoreArgs& args, const Context& context) {
  dispatch_rows().run_checked(prepared, validate(args), args, context);
}

void run(const Prepared<StoreProblem>& prepared, const StoreScalesArgs& args,
         const Context& context) {
  dispatch_scales().run_checked(prepared, validate(args), args, context);
}

void store(const StoreArgs& args, const Context& context) {
  dispatch_rows().run(prepare(validate(args), context), args, context);
}

void store_scales(const StoreScalesArgs& args, const Context& context) {
  dispatch_scales().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
