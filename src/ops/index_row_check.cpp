// SPDX-License-Identifier: Apache-2.0
#include "ops/index_row_check.h"

#include <fmt/format.h>

#include <bit>

#include "ops/latent_check.h"

namespace quire::ops {

void check_index_keys(const Arguments& check, const RowFormat& format) {
  const RowPart& part = format.parts[0];
  const bool has_token_scale = part.scale_source != ScaleSource::none &&
                               part.granularity >= part.width && part.scale_dtype == DType::f32;
  if (!format.is_uniform() || part.dtype != DType::fp8_e4m3 || !has_token_scale) {
    check.fail("cache", "rows of fp8_e4m3 with one f32 scale per token", format.describe());
  }
}

std::int64_t check_index_row(Arguments& check, const IndexRowSteps& steps, std::int64_t head_dim,
                             const PagedBatch& batch) {
  if (steps.hadamard && !std::has_single_bit(static_cast<std::uint64_t>(head_dim))) {
    check.fail("hadamard", "false where head_dim is not a power of two",
               fmt::format("true for rows of {} columns", head_dim));
  }
  if (!steps.freqs_cis) return 0;
  check_freqs(check, *steps.freqs_cis, "rope_dim", batch.end_position);
  const std::int64_t rope_dim = steps.freqs_cis->shape[1];
  if (rope_dim < 2 || rope_dim % 2 != 0 || rope_dim > head_dim) {
    check.fail("freqs_cis", fmt::format("an even number of columns from 2 to {}", head_dim),
               steps.freqs_cis->describe());
  }
  return rope_dim;
}

}  // namespace quire::ops
