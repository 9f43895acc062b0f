// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_prefill.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/batch_part.h"
#include "core/split_kv_b_proj.h"
#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/attention_row.h"
#include "reference/fp8_blocks.h"
#include "reference/key_rows.h"
#include "reference/mla_decode.h"
#include "reference/mla_prefill_plan.h"
#include "reference/mla_rows.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

using Rows = std::vector<std::vector<double>>;

struct Dimensions {
  std::int64_t heads;
  std::int64_t value;
  std::int64_t nope;
  std::int64_t latent;
  std::int64_t rope;
};

Dimensions dimensions_of(const MlaPrefillArgs& args) {
  const std::int64_t heads = args.q.shape[1];
  const std::int64_t value = args.out.shape[2];
  const std::int64_t nope = args.kv_b_proj.shape[0] / heads - value;
  return {.heads = heads,
          .value = value,
          .nope = nope,
          .latent = args.kv_b_proj.shape[1],
          .rope = args.q.shape[2] - nope};
}

// Whether the naive evaluation may round to e4m3 what it multiplies.
bool has_fp8_products(const MlaPrefillArgs& args, Arithmetic arithmetic) {
  return arithmetic.takes_fp8_products() && args.allow_fp8_products;
}

// K, V and rope columns as the products read them.
double round_key(const MlaPrefillArgs& args, Arithmetic arithmetic, double number) {
  const double rounded = round_to(args.q.dtype, number);
  return has_fp8_products(args, arithmetic) ? round_to(DType::fp8_e4m3, rounded) : rounded;
}

// How far fp32 arithmetic may have brought a latent: as far as the row that a call has finished, where
// no narrower dtype has rounded it since.
double latent_reach(const MlaPrefillArgs& args, std::span<const double> latent) {
  const bool is_wide = args.kv_norm_gamma && args.kv_norm_gamma->dtype == DType::f32 &&
                       args.cache.format().parts[0].dtype == DType::f32 &&
                       args.q.dtype == DType::f32;
  return is_wide ? kFactorReach * largest_magnitude(latent) : 0.0;
}

// A chunk's part of one sequence, before the up-projection.
struct ChunkRows {
  Rows latents;  // [keys][latent], as the up-projection reads them
  Rows ropes;    // [keys][rope]
};

ChunkRows gather(const MlaPrefillArgs& args, const Dimensions& dims, std::int64_t sequence,
                 KeyRange range, Arithmetic arithmetic) {
  const PagedKvOperand keys(args.cache.key(args.layer));
  ChunkRows rows;
  for (std::int64_t key = range.first; key < range.last; ++key) {
    const std::vector<double> row = decode_row(keys, sequence, 0, key);
    std::vector<double> latent(row.begin(), row.begin() + dims.latent);
    for (double& element : latent) element = round_to(args.q.dtype, element);
    if (is_fp8(args.kv_b_proj.dtype)) {
      quantize_blocks(latent, args.kv_b_proj.dtype, arithmetic, latent_reach(args, latent));
    }
    std::vector<double> rope(row.begin() + dims.latent, row.end());
    for (double& element : rope) {
      element = has_fp8_products(args, arithmetic)
                    ? round_key(args, arithmetic, element)
                    : intermediate(arithmetic, args.q.dtype, element);
    }
    rows.latents.push_back(std::move(latent));
    rows.ropes.push_back(std::move(rope));
  }
  return rows;
}

// K (with the shared rope key behind it) and V of one head.
struct HeadRows {
  Rows keys;    // [keys][nope + rope]
  Rows values;  // [keys][value]
};

HeadRows up_project(const MlaPrefillArgs& args, const Dimensions& dims, const ChunkRows& rows,
                    std::int64_t head, Arithmetic arithmetic) {
  Rows weight;  // [nope + value][latent]
  const std::int64_t first = head * (dims.nope + dims.value);
  for (std::int64_t row = first; row < first + dims.nope + dims.value; ++row) {
    weight.push_back(load_weight_row(args.kv_b_proj, args.kv_b_proj_scale, row));
  }
  const std::vector<std::span<const double>> weight_rows(weight.begin(), weight.end());
  HeadRows result;
  for (std::size_t key = 0; key < rows.latents.size(); ++key) {
    std::vector<double> projected = is_fp8(args.kv_b_proj.dtype)
                                        ? block_dots(arithmetic, rows.latents[key], weight_rows)
                                        : dots(arithmetic, rows.latents[key], weight_rows);
    for (double& sum : projected) sum = round_key(args, arithmetic, sum);
    const auto split = projected.begin() + dims.nope;
    result.values.emplace_back(split, projected.end());
    result.keys.emplace_back(projected.begin(), split);
    result.keys.back().insert(result.keys.back().end(), rows.ropes[key].begin(),
                              rows.ropes[key].end());
  }
  return result;
}

AttentionRow attend_chunk(const MlaPrefillArgs& args, const Token& token, std::int64_t head,
                          std::span<const std::int64_t> visible, std::int64_t first_key,
                          const HeadRows& rows, Arithmetic arithmetic) {
  const ScoreModifier modifier{
      .scale = args.scale,
      .softcap = args.softcap,
      .alibi_slope = args.alibi_slopes ? args.alibi_slopes->load({head}) : 0.0};
  const bool is_fp8 = has_fp8_products(args, arithmetic);
  std::vector<double> q = load_row(args.q, token.index, head);
  if (is_fp8) q = round_to_fp8(q);
  std::vector<std::span<const double>> keys;
  std::vector<std::span<const double>> values;
  for (const std::int64_t key : visible) {
    const auto index = static_cast<std::size_t>(key - first_key);
    keys.emplace_back(rows.keys[index]);
    values.emplace_back(rows.values[index]);
  }
  std::vector<double> scores = dots(arithmetic, q, keys);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] =
        modify_score(modifier, scores[i], token.position, visible[i], arithmetic, args.q.dtype);
  }
  return is_fp8 ? attend_fp8(scores, values, args.out.shape[2], args.q.dtype)
                : attend(scores, values, args.out.shape[2], arithmetic, args.q.dtype);
}

// Adds the keys of one chunk and sequence to the rows of its tokens. states: [tokens][heads]
void run_chunk(const MlaPrefillArgs& args, std::int64_t sequence, KeyRange range,
               std::vector<std::vector<AttentionRow>>& states, Arithmetic arithmetic) {
  const Dimensions dims = dimensions_of(args);
  const PagedKvOperand keys(args.cache.key(args.layer));
  const ChunkRows rows = gather(args, dims, sequence, range, arithmetic);
  const std::vector<Token> tokens = tokens_of(args.row_offsets, args.cache);
  for (std::int64_t head = 0; head < dims.heads; ++head) {
    const HeadRows head_rows = up_project(args, dims, rows, head, arithmetic);
    for (const Token& token : tokens) {
      if (token.sequence != sequence) continue;
      const std::vector<std::int64_t> visible = visible_keys(keys, args.mask, token, range);
      AttentionRow& state =
          states[static_cast<std::size_t>(token.index)][static_cast<std::size_t>(head)];
      state =
          merge(state, attend_chunk(args, token, head, visible, range.first, head_rows, arithmetic),
                arithmetic);
    }
  }
}

// One sequence in the absorbed form; its rows are finished, its queries rotated.
void decode_sequence(const MlaPrefillArgs& args, std::int64_t sequence, Arithmetic arithmetic) {
  const std::int64_t tokens = num_new_tokens(args.row_offsets, sequence);
  const auto first = static_cast<std::int64_t>(args.row_offsets.load({sequence}));
  const SplitKvBProj weights = split_kv_b_proj(args.kv_b_proj, args.q.shape[1],
                                               dimensions_of(args).nope, args.kv_b_proj_scale);
  std::vector<std::uint32_t> offsets{0, static_cast<std::uint32_t>(tokens)};
  MlaDecodeArgs decoded{.q = rows_of(args.q, first, tokens),
                        .row_offsets = TensorView::contiguous(offsets.data(), DType::u32, {2}),
                        .cache = sequences_of(args.cache, sequence, 1),
                        .layer = args.layer,
                        .w_uk = weights.w_uk,
                        .w_uk_scale = weights.w_uk_scale,
                        .w_uv = weights.w_uv,
                        .w_uv_scale = weights.w_uv_scale,
                        .scale = args.scale,
                        .mask = args.mask,
                        .sinks = args.sinks,
                        .out = rows_of(args.out, first, tokens)};
  if (args.lse.has_value()) decoded.lse = rows_of(*args.lse, first, tokens);
  mla_decode(decoded, arithmetic);
}

}  // namespace

void mla_prefill(const MlaPrefillArgs& args, Arithmetic arithmetic) {
  require_cover(args.chunks, args.row_offsets, args.cache);
  const MlaNewRows new_rows{.row_offsets = args.row_offsets,
                            .cache = args.cache,
                            .layer = args.layer,
                            .freqs_cis = args.freqs_cis,
                            .kv_norm_gamma = args.kv_norm_gamma,
                            .kv = args.kv,
                            .epsilon = args.epsilon};
  rotate_queries(args.q, new_rows, arithmetic);
  finish_rows(new_rows, arithmetic);

  const auto num_tokens = static_cast<std::size_t>(args.q.shape[0]);
  const auto num_heads = static_cast<std::size_t>(args.q.shape[1]);
  const AttentionRow empty{
      .out = std::vector<double>(static_cast<std::size_t>(args.out.shape[2]), 0.0)};
  std::vector<std::vector<AttentionRow>> states(num_tokens, {num_heads, empty});
  for (std::int64_t chunk = 0; chunk < args.chunks.buffer_lengths.shape[0]; ++chunk) {
    for (std::int64_t sequence = 0; sequence < args.cache.batch(); ++sequence) {
      if (num_new_tokens(args.row_offsets, sequence) == 0) continue;
      const std::int64_t keys = num_keys(args.row_offsets, args.cache, sequence);
      const KeyRange range = chunk_keys(args.chunks, chunk, sequence, keys);
      if (range.first < range.last) run_chunk(args, sequence, range, states, arithmetic);
    }
  }
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
      AttentionRow row =
          states[static_cast<std::size_t>(token.index)][static_cast<std::size_t>(head)];
      if (args.sinks) row = add_sink(row, args.sinks->load({head}));
      store_row(row, token.index, head, args.out, args.lse);
    }
  }
  for (std::int64_t sequence = 0; sequence < args.cache.batch(); ++sequence) {
    if (is_decoded(args.row_offsets, sequence, args.chunks.decode_tokens)) {
      decode_sequence(args, sequence, arithmetic);
    }
  }
}

}  // namespace quire::reference
