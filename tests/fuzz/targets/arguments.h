// SPDX-License-Identifier: Apache-2.0
// The fields of every op's arguments, one after the other: visit(field) for each, whatever its type.
#pragma once

#include "quire/quire.h"

namespace quire::test {

template <typename Visit> void for_fields(PagedKVCache& cache, Visit&& visit) {
  visit(cache.blocks), visit(cache.cache_lengths), visit(cache.page_table), visit(cache.scales);
  visit(cache.scales_page_table), visit(cache.row_format);
  visit(cache.max_seq_length), visit(cache.max_cache_length), visit(cache.value_blocks);
}
template <typename Visit> void for_fields(Weight& weight, Visit&& visit) {
  visit(weight.format), visit(weight.data), visit(weight.scale), visit(weight.zeros);
  visit(weight.perm), visit(weight.group_size), visit(weight.packing);
  visit(weight.packed.rows), visit(weight.packed.columns), visit(weight.packed.dtype);
}
template <typename Visit> void for_fields(MlaPrefillChunks& chunks, Visit&& visit) {
  visit(chunks.buffer_row_offsets), visit(chunks.cache_offsets), visit(chunks.buffer_lengths);
  visit(chunks.buffer_tokens), visit(chunks.decode_tokens);
}
template <typename Visit> void for_fields(SparseExtra& extra, Visit&& visit) {
  visit(extra.cache), visit(extra.layer), visit(extra.indices), visit(extra.lengths);
  visit(extra.tokens_per_row);
}

template <typename Visit> void for_fields(CompressKeysArgs& args, Visit&& visit) {
  visit(args.kv), visit(args.gate), visit(args.bias), visit(args.row_offsets), visit(args.cache);
  visit(args.layer), visit(args.gamma), visit(args.freqs_cis), visit(args.epsilon);
  visit(args.state), visit(args.state_slots);
}
template <typename Visit> void for_fields(CopyPagesArgs& args, Visit&& visit) {
  visit(args.cache), visit(args.pairs);
}
template <typename Visit> void for_fields(FlashAttentionArgs& args, Visit&& visit) {
  visit(args.q), visit(args.row_offsets), visit(args.cache), visit(args.layer), visit(args.scale);
  visit(args.mask), visit(args.softcap), visit(args.alibi_slopes), visit(args.sinks);
  visit(args.out), visit(args.lse), visit(args.batch_invariant), visit(args.allow_fp8_products);
  visit(args.max_workspace_bytes), visit(args.shared_prefix_pages), visit(args.key_lengths),
      visit(args.k), visit(args.v);
  visit(args.key_offsets), visit(args.key_blocks), visit(args.key_block_size);
}
template <typename Visit> void for_fields(FusedQkvArgs& args, Visit&& visit) {
  visit(args.x), visit(args.row_offsets), visit(args.weight), visit(args.cache), visit(args.layer);
  visit(args.bias), visit(args.input_scale), visit(args.out), visit(args.activations);
  visit(args.allow_fast_accum), visit(args.allow_tf32), visit(args.batch_invariant);
}
template <typename Visit> void for_fields(LinearArgs& args, Visit&& visit) {
  visit(args.x), visit(args.weight), visit(args.bias), visit(args.input_scale), visit(args.out);
  visit(args.activations), visit(args.allow_fast_accum), visit(args.allow_tf32);
  visit(args.batch_invariant);
}
template <typename Visit> void for_fields(MergeStatesArgs& args, Visit&& visit) {
  visit(args.states), visit(args.lses), visit(args.out), visit(args.lse);
}
template <typename Visit> void for_fields(MlaDecodeArgs& args, Visit&& visit) {
  visit(args.q), visit(args.row_offsets), visit(args.cache), visit(args.layer);
  visit(args.freqs_cis), visit(args.kv_norm_gamma), visit(args.kv), visit(args.w_uk);
  visit(args.w_uk_scale), visit(args.w_uv), visit(args.w_uv_scale), visit(args.scale);
  visit(args.epsilon), visit(args.mask), visit(args.sinks), visit(args.out), visit(args.lse);
  visit(args.batch_invariant), visit(args.allow_fp8_products), visit(args.key_lengths);
}
template <typename Visit> void for_fields(MlaIndexerArgs& args, Visit&& visit) {
  visit(args.q), visit(args.q_scale), visit(args.row_offsets), visit(args.cache);
  visit(args.layer), visit(args.top_k), visit(args.mask), visit(args.out);
  visit(args.scores), visit(args.batch_invariant), visit(args.tokens_per_key);
}
template <typename Visit> void for_fields(SelectBlocksArgs& args, Visit&& visit) {
  visit(args.q), visit(args.row_offsets), visit(args.cache), visit(args.layer);
  visit(args.block_size), visit(args.first_blocks), visit(args.local_blocks), visit(args.mask);
  visit(args.out);
}
template <typename Visit> void for_fields(MlaPrefillArgs& args, Visit&& visit) {
  visit(args.q), visit(args.row_offsets), visit(args.cache), visit(args.layer);
  visit(args.freqs_cis), visit(args.kv_norm_gamma), visit(args.kv), visit(args.kv_b_proj);
  visit(args.kv_b_proj_scale), visit(args.scale), visit(args.epsilon), visit(args.chunks);
  visit(args.mask), visit(args.softcap), visit(args.alibi_slopes), visit(args.sinks);
  visit(args.out), visit(args.lse), visit(args.allow_fp8_products);
  visit(args.batch_invariant);
}
template <typename Visit> void for_fields(MlaPrefillPlanArgs& args, Visit&& visit) {
  visit(args.row_offsets), visit(args.cache), visit(args.layer), visit(args.chunks);
}
template <typename Visit> void for_fields(QuantizeFp8Args& args, Visit&& visit) {
  visit(args.x), visit(args.group_size), visit(args.scale_upper_bound);
  visit(args.scale_rounding), visit(args.out), visit(args.scale);
}
template <typename Visit> void for_fields(QuantizeIndexQueriesArgs& args, Visit&& visit) {
  visit(args.q), visit(args.row_offsets), visit(args.cache), visit(args.weights);
  visit(args.factor), visit(args.freqs_cis), visit(args.interleaved), visit(args.hadamard);
  visit(args.scale_rounding), visit(args.out), visit(args.q_scale);
}
template <typename Visit> void for_fields(RemapSparseIndicesArgs& args, Visit&& visit) {
  visit(args.indices), visit(args.row_offsets), visit(args.cache), visit(args.out);
}
template <typename Visit> void for_fields(RmsNormArgs& args, Visit&& visit) {
  visit(args.cache), visit(args.layer), visit(args.side), visit(args.row_offsets);
  visit(args.gamma), visit(args.epsilon), visit(args.weight_offset), visit(args.per_head);
  visit(args.multiply_before_cast);
}
template <typename Visit> void for_fields(RopeArgs& args, Visit&& visit) {
  visit(args.q), visit(args.row_offsets), visit(args.cache), visit(args.layer);
  visit(args.freqs_cis), visit(args.interleaved), visit(args.inverse), visit(args.position_ids);
  visit(args.mrope_sections), visit(args.rotate_key), visit(args.q_gamma), visit(args.key_gamma);
  visit(args.epsilon), visit(args.weight_offset), visit(args.out);
}
template <typename Visit> void for_fields(RowOffsetsArgs& args, Visit&& visit) {
  visit(args.row_offsets), visit(args.cache_lengths), visit(args.out);
}
template <typename Visit> void for_fields(SparseMlaArgs& args, Visit&& visit) {
  visit(args.q), visit(args.row_offsets), visit(args.cache), visit(args.layer);
  visit(args.indices), visit(args.topk_lengths), visit(args.scale), visit(args.sinks);
  visit(args.extra), visit(args.out), visit(args.lse), visit(args.batch_invariant);
}
template <typename Visit> void for_fields(StoreArgs& args, Visit&& visit) {
  visit(args.x), visit(args.row_offsets), visit(args.cache), visit(args.layer), visit(args.side);
  visit(args.value), visit(args.slots);
}
template <typename Visit> void for_fields(StoreIndexKeysArgs& args, Visit&& visit) {
  visit(args.x), visit(args.row_offsets), visit(args.cache), visit(args.layer);
  visit(args.norm_weight), visit(args.norm_bias), visit(args.epsilon), visit(args.freqs_cis);
  visit(args.interleaved), visit(args.hadamard), visit(args.scale_rounding);
}
template <typename Visit> void for_fields(StoreScalesArgs& args, Visit&& visit) {
  visit(args.scales), visit(args.row_offsets), visit(args.cache), visit(args.layer);
  visit(args.side);
}

}  // namespace quire::test
