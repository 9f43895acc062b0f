// SPDX-License-Identifier: Apache-2.0
// The start of every MLA op: the new tokens' latent rows are finished and their queries rotated.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "quire/paged_kv_cache.h"
#include "quire/tensor_view.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// What mla_prefill and mla_decode know about the new rows; the meanings are theirs.
struct MlaNewRows {
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;
  std::int64_t layer = 0;
  std::optional<TensorView> freqs_cis{};      // [max_pos, rope]; absent: rotated already
  std::optional<TensorView> kv_norm_gamma{};  // [latent]; absent: normalised already
  std::optional<TensorView> kv{};             // [tokens, latent + rope]; absent: in the cache
  double epsilon = 0.0;
};

// Normalises the latent part, rotates the rope part and encodes the row into the cache. Dropped
// where there is no page.
void finish_rows(const MlaNewRows& rows, Arithmetic arithmetic = {});

// (a, b) → (a·cos - b·sin, a·sin + b·cos) of the pairs (2j, 2j+1) of the last columns, with row
// `position` of freqs_cis.
void rotate_tail(std::span<double> row, const TensorView& freqs_cis, std::int64_t position,
                 Arithmetic arithmetic = {});

// rotate_tail of q [tokens, heads, nope + rope], in place.
void rotate_queries(const TensorView& q, const MlaNewRows& rows, Arithmetic arithmetic = {});

}  // namespace quire::reference
