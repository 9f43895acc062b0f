// SPDX-License-Identifier: Apache-2.0
// What the arguments of attention ops have in common: masks, modifiers of a score, results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ops/argument.h"
#include "quire/mask.h"
#include "quire/ops/problem.h"

namespace quire::ops {

// Sizes of windows and chunks; a tree's bits u8 [tokens, columns for the longest sequence]; bounds of key intervals
// i32 [tokens], whose values may be anything.
void check_mask(Arguments& check, const Mask& mask, const RaggedSize& ragged);

// Of ops that take no other masks.
void check_causal_or_full(const Arguments& check, const Mask& mask);

// f32 [heads], if given.
void check_per_head(Arguments& check, ArgumentName name, const std::optional<TensorView>& values,
                    std::int64_t heads);

// [tokens, heads, a width that out is free to choose], tokens and heads as in q; written.
void check_attention_out(Arguments& check, const TensorView& out, const TensorView& q,
                         const char* width);

// Values are the first columns of a row of `columns`, which is that of `rows` ("the cache").
void check_value_columns(const Arguments& check, const TensorView& out, std::int64_t columns,
                         const char* rows = "the cache");

// f32 [tokens, heads], written, if given.
void check_lse(Arguments& check, const std::optional<TensorView>& lse, std::int64_t tokens,
               std::int64_t heads);

// 0 (off) or positive.
void check_softcap(const Arguments& check, double softcap);

}  // namespace quire::ops
