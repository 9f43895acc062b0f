// SPDX-License-Identifier: Apache-2.0
// Softmax attention of one query row (one token, one head): the step that every attention op of the
// oracle shares.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "quire/dtype.h"
#include "quire/tensor_view.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// What a row knows after some of its keys: the normalised output and the natural log of the
// denominator. Without keys (or with scores of -inf only): zeros and -inf.
struct AttentionRow {
  std::vector<double> out;  // [value_dim]
  double lse = -std::numeric_limits<double>::infinity();
};

// How a raw dot product becomes a score.
struct ScoreModifier {
  double scale = 1.0;
  double softcap = 0.0;      // 0: none
  double alibi_slope = 0.0;  // 0: none
};

// softcap(scale · raw) + slope · (key - query); positions are absolute.
double modify_score(const ScoreModifier& modifier, double raw, std::int64_t query, std::int64_t key,
                    Arithmetic arithmetic, DType dtype);

// NaN if any score is NaN, -inf if there are none.
double largest_score(std::span<const double> scores);

// Σ_j softmax(scores)_j · values[j]. Only keys that the query sees may be in the lists: what is
// masked is not multiplied by zero, it is not here. A NaN score makes the row NaN.
AttentionRow attend(std::span<const double> scores,
                    std::span<const std::span<const double>> values,  // [keys][≥ value_dim]
                    std::int64_t value_dim, Arithmetic arithmetic, DType dtype);

// The naive evaluation where products are of e4m3: weights up to 256, rounded to it, before they are
// divided by their sum.
AttentionRow attend_fp8(std::span<const double> scores,
                        std::span<const std::span<const double>> values, std::int64_t value_dim,
                        DType dtype);
// q as such products take it: its largest number in [128, 256) by a power of two, rounded.
std::vector<double> round_to_fp8(std::vector<double> q);

// The row over the keys of both, which must be disjoint. A row with LSE -inf contributes nothing,
// whatever it holds. The naive evaluation has its weights, its sums and its LSE in fp32, as that of merge_states.
AttentionRow merge(const AttentionRow& left, const AttentionRow& right,
                   Arithmetic arithmetic = Arithmetic::exact);

// The row with one more key of score `sink` and value 0.
AttentionRow add_sink(const AttentionRow& row, double sink);

// Rounds the row into out [tokens, heads, value_dim] and, where asked for, lse [tokens, heads].
void store_row(const AttentionRow& row, std::int64_t token, std::int64_t head,
               const TensorView& out, const std::optional<TensorView>& lse);

}  // namespace quire::reference
