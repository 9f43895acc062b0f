// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <numeric>

#include "cpu/rope/rope.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/latent_check.h"
#include "ops/position_check.h"
#include "quire/ops/rope.h"
#include "reference/rope.h"

namespace quire {
namespace {

using ops::Arguments;

void check_rope_dim(const Arguments& check, const RopeArgs& args, const ops::PagedBatch& batch) {
  const std::int64_t widest =
      args.rotate_key ? std::min(args.q.shape[2], batch.head_dim()) : args.q.shape[2];
  const std::int64_t rope_dim = args.freqs_cis.shape[1];
  if (rope_dim < 2 || rope_dim % 2 != 0 || rope_dim > widest) {
    check.fail("freqs_cis", fmt::format("an even number of columns from 2 to {}", widest),
               args.freqs_cis.describe());
  }
}

void check_sections(const Arguments& check, const RopeArgs& args) {
  std::int64_t left = args.freqs_cis.shape[1] / 2;
  for (const std::int64_t size : args.mrope_sections) {
    if (size < 0 || size > left) {
      check.fail("mrope_sections",
                 fmt::format("sizes that share {} pairs", args.freqs_cis.shape[1] / 2),
                 fmt::format("[{}]", fmt::join(args.mrope_sections, ", ")));
    }
    left -= size;
  }
}

void check_position_ids(Arguments& check, const RopeArgs& args) {
  const TensorView& ids = *args.position_ids;
  const std::int64_t tokens = args.q.shape[0];
  const auto num_sections =
      static_cast<std::int64_t>(std::max<std::size_t>(1, args.mrope_sections.size()));
  check.tensor("position_ids", ids).is(DType::u32, {num_sections, tokens});
  check_sections(check, args);
  if (ops::is_on_host(ids)) ops::check_positions(check, ids, args.freqs_cis.shape[0]);
}

void check_gamma(Arguments& check, const char* name, const std::optional<TensorView>& gamma,
                 std::int64_t head_dim) {
  if (!gamma) return;
  check.tensor(name, *gamma).is(ops::kActivations, {"columns"}).has_dense_rows();
  if (gamma->shape[0] < 1 || gamma->shape[0] > head_dim) {
    check.fail(name, fmt::format("1 to {} long", head_dim), gamma->describe());
  }
}

void check_norms(Arguments& check, const RopeArgs& args, const ops::PagedBatch& batch) {
  check_gamma(check, "q_gamma", args.q_gamma, args.q.shape[2]);
  check_gamma(check, "key_gamma", args.key_gamma, batch.head_dim());
  if (args.key_gamma && !args.rotate_key) {
    check.fail("key_gamma", "absent where rotate_key is false", args.key_gamma->describe());
  }
  if (args.key_gamma) ops::check_unscaled(check, args.cache, 0, args.key_gamma->shape[0]);
  check.is_positive("epsilon", args.epsilon);
  check.is_finite("weight_offset", args.weight_offset);
}

void check_key_columns(const Arguments& check, const RopeArgs& args, const ops::PagedBatch& batch) {
  const std::int64_t rope_dim = args.freqs_cis.shape[1];
  const std::int64_t begin = args.interleaved ? batch.head_dim() - rope_dim : 0;
  ops::check_unscaled(check, args.cache, begin, begin + rope_dim);
}

const ops::Dispatch<RopeProblem, RopeArgs>& dispatch() {
  static const ops::Dispatch<RopeProblem, RopeArgs> table(
      "rope", {
                  .cuda = cuda::rope_kernels(),
                  .run_on_cpu = cpu::rope,
                  .run_reference = [](const RopeArgs& args) { reference::rope(args); },
              });
  return table;
}

}  // namespace

RopeProblem validate(const RopeArgs& args) {
  Arguments check("rope");
  check.tensor("q", args.q)
      .is(ops::kActivations, {"tokens", "heads", "head_dim"})
      .has_full_rows()
      .has_dense_rows();
  const auto [tokens, heads, head_dim] =
      std::array{args.q.shape[0], args.q.shape[1], args.q.shape[2]};
  const ops::CacheUse use{
      .layer = args.layer,
      .access = args.rotate_key ? ops::CacheAccess::write : ops::CacheAccess::read};
  const ops::PagedBatch batch = ops::check_batch(check, args.cache, use, args.row_offsets, tokens);
  const bool has_ids = args.position_ids.has_value();
  ops::check_freqs(check, args.freqs_cis, "rope_dim", has_ids ? 0 : batch.end_position);
  check_rope_dim(check, args, batch);
  if (has_ids) check_position_ids(check, args);
  if (!has_ids && !args.mrope_sections.empty()) {
    check.fail("position_ids", "given with mrope_sections", "none");
  }
  if (args.rotate_key) check_key_columns(check, args, batch);
  check_norms(check, args, batch);
  check.tensor("out", args.out)
      .is(ops::kActivations, {tokens, heads, head_dim})
      .has_dense_rows()
      .is_written();
  check.outputs_do_not_overlap({{"out", "q"}});
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .heads = heads,
          .head_dim = head_dim,
          .rope_dim = args.freqs_cis.shape[1],
          .q_dtype = args.q.dtype,
          .freqs_dtype = args.freqs_cis.dtype,
          .interleaved = args.interleaved,
          .inverse = args.inverse,
          .has_position_ids = has_ids,
          .q_norm_columns = args.q_gamma ? args.q_gamma->shape[0] : 0,
          .key_norm_columns = args.key_gamma ? args.key_gamma->shape[0] : 0};
}

Prepared<RopeProblem> prepare(const RopeProblem& problem, const Context& context) {
  return dispatch().prepare("rope", problem, context);
}

Plan plan(const RopeProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const RopeArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<RopeProblem>& prepared, const RopeArgs& args, const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void rope(const RopeArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
