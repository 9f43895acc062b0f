// SPDX-License-Identifier: Apache-2.0
#include "reference/flash_attention.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "quire/paged_kv_operand.h"
#include "quire/ragged_operand.h"
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
bool has_fp8_products(const FlashAttentionArgs& args, const KvOperandRef& keys,
                      Arithmetic arithmetic) {
  return arithmetic.takes_fp8_products() && args.allow_fp8_products &&
         keys.layout().format.parts[0].dtype == DType::fp8_e4m3;
}

// Of the keys, those that stand in a block of the list of this token and KV head.
std::vector<std::int64_t> in_blocks(const FlashAttentionArgs& args, const Token& token,
                                    std::int64_t kv_head, std::span<const std::int64_t> keys) {
  std::set<std::int64_t> blocks;
  for (std::int64_t slot = 0; slot < args.key_blocks->shape[2]; ++slot) {
    blocks.insert(static_cast<std::int64_t>(args.key_blocks->load({token.index, kv_head, slot})));
  }
  std::vector<std::int64_t> found;
  for (const std::int64_t key : keys) {
    if (blocks.contains(key / args.key_block_size)) found.push_back(key);
  }
  return found;
}

// One token and head over the keys it sees.
void attend_row(const FlashAttentionArgs& args, const Token& token, std::int64_t head,
                std::span<const std::int64_t> visible, const KeyRows& keys, const KeyRows& values,
                bool is_fp8, Arithmetic arithmetic) {
  const ScoreModifier modifier = score_modifier(args, head);
  std::vector<double> q = load_row(args.q, token.index, head);
  if (is_fp8) q = round_to_fp8(q);
  std::vector<double> scores = dots(arithmetic, q, keys.select(visible));
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] =
        modify_score(modifier, scores[i], token.position, visible[i], arithmetic, args.q.dtype);
  }
  AttentionRow row =
      is_fp8 ? attend_fp8(scores, values.select(visible), args.out.shape[2], args.q.dtype)
             : attend(scores, values.select(visible), args.out.shape[2], arithmetic, args.q.dtype);
  if (args.sinks) row = add_sink(row, args.sinks->load({head}));
  store_row(row, token.index, head, args.out, args.lse);
}

}  // namespace

void flash_attention_over(const FlashAttentionArgs& args, const KvOperandRef& keys,
                          const KvOperandRef& values, Arithmetic arithmetic) {
  const std::int64_t kv_heads = keys.heads().count;
  const std::int64_t group = args.q.shape[1] / kv_heads;
  const bool is_fp8 = has_fp8_products(args, keys, arithmetic);
  const std::vector<Token> tokens = tokens_of(args.row_offsets, keys);
  for (std::int64_t sequence = 0; sequence + 1 < args.row_offsets.shape[0]; ++sequence) {
    const std::int64_t last = keys.num_keys(sequence, num_new_tokens(args.row_offsets, sequence));
    for (std::int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      const KeyRows key_rows(keys, sequence, kv_head, last, arithmetic, args.q.dtype);
      const KeyRows value_rows(values, sequence, kv_head, last, arithmetic, args.q.dtype);
      for (const Token& token : tokens) {
        if (token.sequence != sequence) continue;
        std::vector<std::int64_t> visible =
            visible_keys(keys, args.mask, token, {.first = 0, .last = last});
        if (args.key_blocks) visible = in_blocks(args, token, kv_head, visible);
        for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          attend_row(args, token, head, visible, key_rows, value_rows, is_fp8, arithmetic);
        }
      }
    }
  }
}

void flash_attention(const FlashAttentionArgs& args, Arithmetic arithmetic) {
  if (args.key_offsets.has_value()) {
    return flash_attention_over(args, RaggedOperand(*args.k, *args.key_offsets),
                                RaggedOperand(*args.v, *args.key_offsets), arithmetic);
  }
  const PagedKvOperand keys(args.cache.key(args.layer).with_keys(args.key_lengths));
  if (args.cache.is_mla()) return flash_attention_over(args, keys, keys, arithmetic);
  const PagedKvOperand values(args.cache.value(args.layer).with_keys(args.key_lengths));
  flash_attention_over(args, keys, values, arithmetic);
}

}  // namespace quire::reference
