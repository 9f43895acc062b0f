// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/compress_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cpu/compress_keys/compress_keys.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/latent_check.h"
#include "reference/compress_keys.h"

namespace quire {
namespace {

using ops::Arguments;

ops::PagedBatch check_inputs(Arguments& check, const CompressKeysArgs& args) {
  check.tensor("kv", args.kv)
      .is(ops::kActivations, {"tokens", "series * width"})
      .has_full_rows()
      .has_dense_rows();
  const std::int64_t tokens = args.kv.shape[0];
  const std::int64_t columns = args.kv.shape[1];
  check.tensor("gate", args.gate).is(args.kv.dtype, {tokens, columns}).has_dense_rows();
  check.tensor("bias", args.bias).is(ops::kActivations, {"ratio", columns}).has_dense_rows();
  if (args.bias.shape[0] < 1) check.fail("bias", "of a token or more", args.bias.describe());
  const ops::CacheUse use{.layer = args.layer,
                          .access = ops::CacheAccess::write,
                          .kind = ops::CacheKind::mla,
                          .tokens_per_row = args.bias.shape[0]};
  const ops::PagedBatch batch = ops::check_batch(check, args.cache, use, args.row_offsets, tokens);
  const std::int64_t width = batch.head_dim();
  if (columns != width && columns != 2 * width) {
    check.fail("kv", fmt::format("{} or {} wide, for rows of {} columns", width, 2 * width, width),
               args.kv.describe());
  }
  return batch;
}

// A row's position is that of its first token.
void check_rope(Arguments& check, const CompressKeysArgs& args, const ops::PagedBatch& batch) {
  const std::int64_t ratio = args.bias.shape[0];
  const std::int64_t rows = std::max<std::int64_t>(batch.end_position, 0) / ratio;
  ops::check_freqs(check, args.freqs_cis, "rope", rows > 0 ? (rows - 1) * ratio + 1 : 0);
  const std::int64_t rope = args.freqs_cis.shape[1];
  if (rope < 2 || rope % 2 != 0 || rope > batch.head_dim()) {
    check.fail("freqs_cis", fmt::format("an even number of columns from 2 to {}", batch.head_dim()),
               args.freqs_cis.describe());
  }
}

// Every sequence has a slot of its own.
void check_slots(Arguments& check, const CompressKeysArgs& args, std::int64_t batch) {
  const std::int64_t num_slots = args.state.shape[0];
  if (!args.state_slots.has_value()) {
    if (num_slots >= batch) return;
    check.fail("state", fmt::format("of {} slots or more, one for each sequence", batch),
               args.state.describe());
  }
  check.tensor("state_slots", *args.state_slots).is(DType::u32, {batch}).has_dense_rows();
  if (!ops::is_on_host(*args.state_slots)) return;
  const auto* slots = args.state_slots->as<const std::uint32_t>();
  std::vector<std::uint32_t> sorted(slots, slots + batch);
  std::ranges::sort(sorted);
  if (!sorted.empty() && sorted.back() >= num_slots) {
    check.fail("state_slots", fmt::format("below the {} slots of 'state'", num_slots),
               std::to_string(sorted.back()));
  }
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end()) {
    check.fail("state_slots", "different for all sequences", fmt::format("{} twice", *twice));
  }
}

void check_state(Arguments& check, const CompressKeysArgs& args, const ops::PagedBatch& batch) {
  const std::array dtypes{args.kv.dtype, DType::f32};
  const std::int64_t columns = args.kv.shape[1];
  check.tensor("state", args.state)
      .is(dtypes, {"slots", "rows", 2, columns})
      .has_dense_rows()
      .is_written();
  const std::int64_t needed = columns / batch.head_dim() * args.bias.shape[0];
  if (args.state.shape[1] < needed) {
    check.fail("state", fmt::format("of {} rows or more in each slot", needed),
               args.state.describe());
  }
  check_slots(check, args, batch.ragged.batch);
}

const ops::Dispatch<CompressKeysProblem, CompressKeysArgs>& dispatch() {
  static const ops::Dispatch<CompressKeysProblem, CompressKeysArgs> table(
      "compress_keys",
      {
          .cuda = cuda::compress_keys_kernels(),
          .run_on_cpu = cpu::compress_keys,
          .run_reference = [](const CompressKeysArgs& args) { reference::compress_keys(args); },
      });
  return table;
}

}  // namespace

CompressKeysProblem validate(const CompressKeysArgs& args) {
  Arguments check("compress_keys");
  const ops::PagedBatch batch = check_inputs(check, args);
  check.tensor("gamma", args.gamma).is(ops::kActivations, {batch.head_dim()}).has_dense_rows();
  check_rope(check, args, batch);
  check.is_positive("epsilon", args.epsilon);
  check_state(check, args, batch);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .width = batch.head_dim(),
          .series = args.kv.shape[1] / batch.head_dim(),
          .ratio = args.bias.shape[0],
          .rope_dim = args.freqs_cis.shape[1],
          .state_rows = args.state.shape[1],
          .kv_dtype = args.kv.dtype,
          .state_dtype = args.state.dtype,
          .has_slots = args.state_slots.has_value()};
}

Prepared<CompressKeysProblem> prepare(const CompressKeysProblem& problem, const Context& context) {
  return dispatch().prepare("compress_keys", problem, context);
}

Plan plan(const CompressKeysProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const CompressKeysArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<CompressKeysProblem>& prepared, const CompressKeysArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void compress_keys(const CompressKeysArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
