// SPDX-License-Identifier: Apache-2.0
// What mla_prefill and mla_decode share: the arguments that finish the new tokens' rows, and fp8
// weights in 128×128 blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ops/argument.h"
#include "ops/cache_check.h"

namespace quire::ops {

inline constexpr std::int64_t kScaleBlock = 128;

// The parts of an MLA row and of a query head.
struct LatentDims {
  std::int64_t latent = 0;
  std::int64_t rope = 0;
  std::int64_t nope = 0;  // of q; 0 if q is absorbed
};

// latent + rope = the row's width and nope + rope = q's width, both with at least one column of
// rope left over and an even number of them.
LatentDims check_latent_dims(const Arguments& check, std::int64_t row_width, std::int64_t latent,
                             ArgumentName latent_name, std::int64_t q_width);

struct FinishArgs {
  const std::optional<TensorView>& freqs_cis;
  const std::optional<TensorView>& kv_norm_gamma;
  const std::optional<TensorView>& kv;
  double epsilon;
};

// freqs_cis and kv_norm_gamma come together; kv, the raw rows, needs both.
void check_finish(Arguments& check, const FinishArgs& args, const LatentDims& dims,
                  const PagedBatch& batch);

// freqs_cis [max_pos, rope_dim] with a row for every position below end_position.
void check_freqs(Arguments& check, const TensorView& freqs_cis, Extent rope_dim,
                 std::int64_t end_position);

// A scale is given exactly for fp8 weights: f32, finite, one per 128×128 block of the last two
// dimensions.
void check_block_scale(Arguments& check, ArgumentName name, const std::optional<TensorView>& scale,
                       const TensorView& weight);

}  // namespace quire::ops
