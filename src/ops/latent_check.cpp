// SPDX-License-Identifier: Apache-2.0
#include "ops/latent_check.h"

#include <fmt/format.h>

#include "ops/memory_span.h"

namespace quire::ops {

LatentDims check_latent_dims(const Arguments& check, std::int64_t row_width, std::int64_t latent,
                             ArgumentName latent_name, std::int64_t q_width) {
  const std::int64_t rope = row_width - latent;
  if (latent < 1 || rope < 2 || rope % 2 != 0) {
    check.fail(
        latent_name,
        fmt::format("a latent width that leaves pairs of rope columns in rows of {}", row_width),
        std::to_string(latent));
  }
  if (q_width <= rope) {
    check.fail("q", fmt::format("wider than the {} rope columns per head", rope),
               std::to_string(q_width));
  }
  return {.latent = latent, .rope = rope, .nope = q_width - rope};
}

void check_freqs(Arguments& check, const TensorView& freqs_cis, Extent rope_dim,
                 std::int64_t end_position) {
  check.tensor("freqs_cis", freqs_cis).is(kActivations, {"max_pos", rope_dim}).has_dense_rows();
  if (freqs_cis.shape[0] < end_position) {
    check.fail("freqs_cis", fmt::format("of {} rows or more, one for each position", end_position),
               freqs_cis.describe());
  }
}

void check_finish(Arguments& check, const FinishArgs& args, const LatentDims& dims,
                  const PagedBatch& batch) {
  if (args.freqs_cis.has_value() != args.kv_norm_gamma.has_value()) {
    const bool has_freqs = args.freqs_cis.has_value();
    check.fail(has_freqs ? "kv_norm_gamma" : "freqs_cis",
               has_freqs ? "given together with freqs_cis" : "given together with kv_norm_gamma",
               "none");
  }
  if (args.freqs_cis.has_value()) {
    check_freqs(check, *args.freqs_cis, dims.rope, batch.end_position);
    check.tensor("kv_norm_gamma", *args.kv_norm_gamma)
        .is(kActivations, {dims.latent})
        .has_dense_rows();
    check.is_positive("epsilon", args.epsilon);
  }
  if (!args.kv.has_value()) return;
  if (!args.freqs_cis.has_value()) {
    check.fail("freqs_cis", "given with kv, whose rows are raw", "none");
  }
  check.tensor("kv", *args.kv)
      .is(kActivations, {batch.ragged.tokens, dims.latent + dims.rope})
      .has_dense_rows();
}

void check_block_scale(Arguments& check, ArgumentName name, const std::optional<TensorView>& scale,
                       const TensorView& weight) {
  if (is_fp8(weight.dtype) != scale.has_value()) {
    check.fail(name, is_fp8(weight.dtype) ? "given for an fp8 weight" : "absent",
               scale.has_value() ? scale->describe() : "none");
  }
  if (!scale.has_value()) return;
  const std::int64_t row_blocks = ceil_div(weight.shape[weight.rank - 2], kScaleBlock);
  const std::int64_t column_blocks = ceil_div(weight.shape[weight.rank - 1], kScaleBlock);
  if (weight.rank == 3) {
    check.tensor(name, *scale)
        .is(DType::f32, {weight.shape[0], row_blocks, column_blocks})
        .is_finite();
  } else {
    check.tensor(name, *scale).is(DType::f32, {row_blocks, column_blocks}).is_finite();
  }
}

}  // namespace quire::ops
