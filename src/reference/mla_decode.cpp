// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_decode.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/attention_row.h"
#include "reference/fp8_blocks.h"
#include "reference/key_rows.h"
#include "reference/latent_products.h"
#include "reference/mla_rows.h"
#include "reference/ragged.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

using Rows = std::vector<std::vector<double>>;

// One head's matrix of a weight [heads, rows, columns], block scales applied; empty for an absorbed
// call.
Rows load_head(const std::optional<TensorView>& weight, const std::optional<TensorView>& scale,
               std::int64_t head) {
  Rows rows;
  if (!weight) return rows;
  for (std::int64_t row = 0; row < weight->shape[1]; ++row) {
    rows.push_back(load_weight_row(*weight, scale, head, row));
  }
  return rows;
}

// matrix · x, with x quantized first where the matrix is fp8.
std::vector<double> project(const Rows& matrix, DType matrix_dtype, std::vector<double> x,
                            Arithmetic arithmetic) {
  if (is_fp8(matrix_dtype)) quantize_blocks(x, matrix_dtype, arithmetic);
  return dots(arithmetic, x, std::vector<std::span<const double>>(matrix.begin(), matrix.end()));
}

// How far codes of x, rounded to `dtype`, can move matrix · x where numbers of x that may be off by `reach` cross
// middles: a kernel may cross some and not others.
std::vector<double> crossings(const Rows& matrix, DType fp8, DType dtype, std::vector<double> x,
                              double reach) {
  std::vector<double> crossed = x;
  for (double& element : crossed) {
    element = round_within(Arithmetic::crossed, dtype, element, reach);
  }
  for (double& element : x) element = round_to(dtype, element);
  quantize_blocks(x, fp8, Arithmetic::naive);
  quantize_blocks(crossed, fp8, Arithmetic::crossed, reach);
  std::vector<double> moved;
  for (const std::vector<double>& row : matrix) {
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += std::abs((crossed[i] - x[i]) * row[i]);
    moved.push_back(sum);
  }
  return moved;
}

// q' [latent + rope]: absorbed, where there is a w_uk, and rotated, where there are frequencies.
std::vector<double> absorbed_query(const MlaDecodeArgs& args, const Token& token, std::int64_t head,
                                   const Rows& w_uk, Arithmetic arithmetic) {
  std::vector<double> q = load_row(args.q, token.index, head);
  if (args.freqs_cis) rotate_tail(q, *args.freqs_cis, token.position, arithmetic);
  if (args.w_uk) {
    const auto rope_part = q.begin() + args.w_uk->shape[2];
    std::vector<double> absorbed =
        project(w_uk, args.w_uk->dtype, {q.begin(), rope_part}, arithmetic);
    absorbed.insert(absorbed.end(), rope_part, q.end());
    q = std::move(absorbed);
  }
  for (double& element : q) element = intermediate(arithmetic, args.q.dtype, element);
  return q;
}

std::int64_t latent_columns(const MlaDecodeArgs& args) {
  return args.w_uk ? args.w_uk->shape[1] : args.out.shape[2];
}

// Whether an evaluation multiplies as fp8 tensor cores do: where that is allowed, and over bf16 queries in random
// evaluations, since kernels may then keep the digits of bf16 in sums of e4m3 and e5m2 numbers.
bool has_fp8_products(const MlaDecodeArgs& args, Arithmetic arithmetic) {
  const bool is_random = arithmetic.kind == Arithmetic::Kind::random;
  return arithmetic.takes_fp8_products() &&
         (args.allow_fp8_products || (is_random && args.q.dtype == DType::bf16)) &&
         LatentProducts::take(args.cache.format(), latent_columns(args));
}

// The keys of a sequence in one form or the other.
struct SequenceKeys {
  std::int64_t count;
  std::optional<KeyRows> rows{};
  std::optional<LatentProducts> products{};
};

// softmax(scale · q' · row) · row[0, latent), the sink in the denominator.
AttentionRow attend_latents(const MlaDecodeArgs& args, const Token& token, std::int64_t head,
                            std::vector<double> q, std::span<const std::int64_t> visible,
                            const SequenceKeys& keys, Arithmetic arithmetic) {
  const ScoreModifier modifier{.scale = args.scale};
  const bool is_fp8 = keys.products.has_value();
  if (is_fp8 && args.allow_fp8_products) q = keys.products->round_query(q);
  std::vector<double> scores =
      is_fp8 ? keys.products->scores(q, visible) : dots(arithmetic, q, keys.rows->select(visible));
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] =
        modify_score(modifier, scores[i], token.position, visible[i], arithmetic, args.q.dtype);
  }
  const WeightRounding rounding =
      args.allow_fp8_products ? WeightRounding::e4m3 : WeightRounding::e4m3_and_e5m2;
  AttentionRow row = is_fp8 ? keys.products->attend(scores, visible, rounding, args.q.dtype)
                            : attend(scores, keys.rows->select(visible), latent_columns(args),
                                     arithmetic, args.q.dtype);
  if (args.sinks) row = add_sink(row, args.sinks->load({head}));
  return row;
}

// The attention's result through w_uv, rounded to q's dtype on the way.
std::vector<double> values_of(const Rows& w_uv, const MlaDecodeArgs& args,
                              const std::vector<double>& raw, Arithmetic arithmetic) {
  std::vector<double> rounded = raw;
  for (double& element : rounded) element = round_to(args.q.dtype, element);
  std::vector<double> values = project(w_uv, args.w_uv->dtype, std::move(rounded), arithmetic);
  if (arithmetic == Arithmetic::crossed && is_fp8(args.w_uv->dtype)) {
    const std::vector<double> moved =
        crossings(w_uv, args.w_uv->dtype, args.q.dtype, raw, kSumReach * largest_magnitude(raw));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += moved[i];
  }
  return values;
}

void run_head(const MlaDecodeArgs& args, std::span<const Token> tokens, std::int64_t head,
              const SequenceKeys& sequence_keys, Arithmetic arithmetic) {
  const PagedKvOperand keys(args.cache.key(args.layer).with_keys(args.key_lengths));
  const Rows w_uk = load_head(args.w_uk, args.w_uk_scale, head);
  const Rows w_uv = load_head(args.w_uv, args.w_uv_scale, head);
  for (const Token& token : tokens) {
    const std::vector<double> q = absorbed_query(args, token, head, w_uk, arithmetic);
    const std::vector<std::int64_t> visible =
        visible_keys(keys, args.mask, token, {.first = 0, .last = sequence_keys.count});
    AttentionRow row = attend_latents(args, token, head, q, visible, sequence_keys, arithmetic);
    if (args.w_uv) row.out = values_of(w_uv, args, row.out, arithmetic);
    store_row(row, token.index, head, args.out, args.lse);
  }
}

}  // namespace

void mla_decode(const MlaDecodeArgs& args, Arithmetic arithmetic) {
  finish_rows({.row_offsets = args.row_offsets,
               .cache = args.cache,
               .layer = args.layer,
               .freqs_cis = args.freqs_cis,
               .kv_norm_gamma = args.kv_norm_gamma,
               .kv = args.kv,
               .epsilon = args.epsilon},
              arithmetic);

  const PagedKvOperand keys(args.cache.key(args.layer).with_keys(args.key_lengths));
  std::vector<std::vector<Token>> tokens(static_cast<std::size_t>(args.cache.batch()));
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    tokens[static_cast<std::size_t>(token.sequence)].push_back(token);
  }
  for (std::int64_t sequence = 0; sequence < args.cache.batch(); ++sequence) {
    const std::vector<Token>& own = tokens[static_cast<std::size_t>(sequence)];
    if (own.empty()) continue;
    const std::int64_t last = keys.num_keys(sequence, std::ssize(own));
    SequenceKeys sequence_keys{.count = last};
    if (has_fp8_products(args, arithmetic)) {
      sequence_keys.products.emplace(keys, sequence, last, latent_columns(args), arithmetic);
    } else {
      sequence_keys.rows.emplace(keys, sequence, 0, last, arithmetic, args.q.dtype);
    }
    for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
      run_head(args, own, head, sequence_keys, arithmetic);
    }
  }
}

}  // namespace quire::reference
