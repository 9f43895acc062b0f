// SPDX-License-Identifier: Apache-2.0
#include "reference/flash_attention.h"

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/attention_row.h"
#include "reference/key_rows.h"
#include "reference/ragged.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

ScoreModifier score_modifier(const FlashAttentionArgs& args, std::int64_t head) {
  const auto head_dim = static_cast<double>(args.q.shape[2]);
  return {.scale = args.scale.value_or(1.0 / std::sqrt(head_dim)),
          .softcap = args.softcap,
          .alibi_slope = args.alibi_slopes ? args.alibi_slopes->load({head}) : 0.0};
}

// Whether the naive evaluation may round to e4m3 what it multiplies.
bool has_fp8_products(const FlashAttentionArgs& args, Arithmetic arithmetic) {
  return arithmetic != Arithmetic::exact && args.allow_fp8_products &&
         args.cache.format().parts[0].dtype == DType::fp8_e4m3;
}

// One token and head over the keys it sees.
void attend_row(const FlashAttentionArgs& args, const Token& token, std::int64_t head,
                std::span<const std::int64_t> visible, const KeyRows& keys, const KeyRows& values,
                Arithmetic arithmetic) {
  const ScoreModifier modifier = score_modifier(args, head);
  const bool is_fp8 = has_fp8_products(args, arithmetic);
  std::vector<double> q = load_row(args.q, token.index, head);
  if (is_fp8) q = round_to_fp8(q);
  std::vector<double> scores;
  for (const std::int64_t key : visible) {
    const double raw = dot(arithmetic, q, keys.row(key));
    scores.push_back(modify_score(modifier, raw, token.position, key, arithmetic, args.q.dtype));
  }
  AttentionRow row =
      is_fp8 ? attend_fp8(scores, values.select(visible), args.out.shape[2], args.q.dtype)
             : attend(scores, values.select(visible), args.out.shape[2], arithmetic, args.q.dtype);
  if (args.sinks) row = add_sink(row, args.sinks->load({head}));
  store_row(row, token.index, head, args.out, args.lse);
}

}  // namespace

void flash_attention(const FlashAttentionArgs& args, Arithmetic arithmetic) {
  const KvLayerView key_view = args.cache.key(args.layer);
  const KvLayerView value_view = args.cache.is_mla() ? key_view : args.cache.value(args.layer);
  const std::int64_t group = args.q.shape[1] / key_view.num_heads;
  const std::vector<Token> tokens = tokens_of(args.row_offsets, args.cache);
  for (std::int64_t sequence = 0; sequence < args.cache.batch(); ++sequence) {
    const std::int64_t last = num_keys(args.row_offsets, args.cache, sequence);
    for (std::int64_t kv_head = 0; kv_head < key_view.num_heads; ++kv_head) {
      const KeyRows keys(key_view, sequence, kv_head, last, arithmetic, args.q.dtype);
      const KeyRows values(value_view, sequence, kv_head, last, arithmetic, args.q.dtype);
      for (const Token& token : tokens) {
        if (token.sequence != sequence) continue;
        const std::vector<std::int64_t> visible =
            visible_keys(key_view, args.mask, token, {.first = 0, .last = last});
        for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          attend_row(args, token, head, visible, keys, values, arithmetic);
        }
      }
    }
  }
}

}  // namespace quire::reference
