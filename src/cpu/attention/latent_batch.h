// SPDX-License-Identifier: Apache-2.0
// The start of every MLA op over a batch: the new tokens' rows are finished, their queries rotated.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/runtime/target.h"
#include "cpu/runtime/thread_pool.h"
#include "quire/kv_operand.h"
#include "quire/tensor_view.h"

namespace quire::cpu {

// What mla_prefill and mla_decode know about the new rows; the meanings are theirs.
struct NewLatents {
  TensorView row_offsets;                          // u32 [batch + 1]
  KvOperandRef rows;                               // the last of each sequence are the new tokens
  const std::optional<TensorView>& freqs_cis;      // [max_pos, rope]; absent: nothing to do
  const std::optional<TensorView>& kv_norm_gamma;  // [latent]
  const std::optional<TensorView>& kv;             // [tokens, latent + rope]; absent: in `rows`
  double epsilon = 0.0;
};

// Rows that have no memory are dropped.
void finish_new_rows(const NewLatents& latents, const Workers& workers, Target target);

// Rotates the last columns of q [tokens, heads, …] into those of out, and copies the `copied`
// columns before them. Where out is q, in place.
void rotate_queries(const NewLatents& latents, const TensorView& q, const TensorView& out,
                    std::int64_t copied, const Workers& workers, Target target);

}  // namespace quire::cpu
