// SPDX-License-Identifier: Apache-2.0
#include "cpu/flash_attention/flash_attention.h"

#include <cmath>

#include "cpu/attention/batch.h"
#include "cpu/flash_attention/key_blocks.h"
#include "cpu/runtime/scratch.h"
#include "quire/paged_kv_operand.h"
#include "quire/ragged_operand.h"

namespace quire::cpu {

void flash_attention_over(const FlashAttentionArgs& args, const KvOperandRef& keys,
                          const std::optional<KvOperandRef>& values, const Context& context,
                          Target target) {
  const double scale = args.scale.value_or(1.0 / std::sqrt(static_cast<double>(args.q.shape[2])));
  const ScoreRule score{.scale = scale, .softcap = static_cast<float>(args.softcap)};
  if (args.key_blocks) return attend_key_blocks(args, keys, values, score, context, target);
  const AttentionBatch batch{.q = args.q,
                             .row_offsets = args.row_offsets,
                             .keys = keys,
                             .values = values,
                             .mask = args.mask,
                             .score = score,
                             .slopes = args.alibi_slopes,
                             .sinks = args.sinks,
                             .out = args.out,
                             .lse = args.lse};
  BatchAttention attention(batch, context, target);
  attention.run(thread_scratch(attention.scratch_bytes()));
}

void flash_attention(const FlashAttentionArgs& args, const Context& context, Target target) {
  if (args.key_offsets.has_value()) {
    const RaggedOperand keys(*args.k, *args.key_offsets);
    const RaggedOperand values(*args.v, *args.key_offsets);
    return flash_attention_over(args, keys, values, context, target);
  }
  const PagedKvOperand keys(args.cache.key(args.layer).with_keys(args.key_lengths));
  if (args.cache.is_mla()) return flash_attention_over(args, keys, std::nullopt, context, target);
  const PagedKvOperand values(args.cache.value(args.layer).with_keys(args.key_lengths));
  flash_attention_over(args, keys, values, context, target);
}

std::string refuse_flash_attention(const FlashAttentionProblem& problem, Target) {
  if (problem.max_key_blocks > 0 && problem.has_alibi) {
    return "ALiBi over key_blocks, whose slots have no positions here";
  }
  return "";
}

}  // namespace quire::cpu
