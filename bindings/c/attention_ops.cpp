// SPDX-License-Identifier: Apache-2.0
#include "op.h"
#include "quire/c/attention.h"
#include "quire/ops/flash_attention.h"
#include "quire/ops/merge_states.h"
#include "quire/ops/select_blocks.h"

namespace quire::c {
namespace {

FlashAttentionArgs read_flash_attention(const Reader& in, const quire_flash_attention_args& from) {
  const bool is_ragged = from.cache == nullptr && from.k != nullptr;
  FlashAttentionArgs args{
      .q = in.tensor("q", from.q),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = is_ragged ? PagedKVCache{} : in.cache("cache", from.cache),
      .layer = from.layer,
      .mask = in.mask(from.mask),
      .softcap = from.softcap,
      .alibi_slopes = in.optional_tensor("alibi_slopes", from.alibi_slopes),
      .sinks = in.optional_tensor("sinks", from.sinks),
      .out = in.tensor("out", from.out),
      .lse = in.optional_tensor("lse", from.lse),
      .batch_invariant = in.flag("batch_invariant", from.batch_invariant),
      .allow_fp8_products = in.flag("allow_fp8_products", from.allow_fp8_products),
      .shared_prefix_pages = from.shared_prefix_pages,
      .max_workspace_bytes = from.max_workspace_bytes,
      .key_lengths = in.optional_indices("key_lengths", from.key_lengths),
      .k = in.optional_tensor("k", from.k),
      .v = in.optional_tensor("v", from.v),
      .key_offsets = in.optional_indices("key_offsets", from.key_offsets),
      .key_blocks = in.optional_tensor("key_blocks", from.key_blocks),
  };
  if (from.key_block_size != 0) args.key_block_size = from.key_block_size;
  if (from.scale != 0.0) args.scale = from.scale;
  return args;
}

MergeStatesArgs read_merge_states(const Reader& in, const quire_merge_states_args& from) {
  return {
      .states = in.tensor("states", from.states),
      .lses = in.tensor("lses", from.lses),
      .out = in.tensor("out", from.out),
      .lse = in.optional_tensor("lse", from.lse),
  };
}

SelectBlocksArgs read_select_blocks(const Reader& in, const quire_select_blocks_args& from) {
  static const SelectBlocksArgs defaults{};
  return {
      .q = in.tensor("q", from.q),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .block_size = given_or(from.block_size, defaults.block_size),
      .first_blocks = from.first_blocks,
      .local_blocks = from.local_blocks,
      .mask = in.mask(from.mask),
      .out = in.tensor("out", from.out),
  };
}

constexpr Op<quire_flash_attention_args, FlashAttentionArgs> kFlashAttention(
    "flash_attention", {.required = offsetof(quire_flash_attention_args, mask),
                        .read = read_flash_attention,
                        .run = flash_attention});
constexpr Op<quire_merge_states_args, MergeStatesArgs> kMergeStates(
    "merge_states", {.required = offsetof(quire_merge_states_args, lse),
                     .read = read_merge_states,
                     .run = merge_states});

constexpr Op<quire_select_blocks_args, SelectBlocksArgs> kSelectBlocks(
    "select_blocks", {.required = offsetof(quire_select_blocks_args, block_size),
                      .read = read_select_blocks,
                      .run = select_blocks});

constexpr NumberedOp kOps[] = {
    {QUIRE_OP_FLASH_ATTENTION, &kFlashAttention},
    {QUIRE_OP_MERGE_STATES, &kMergeStates},
    {QUIRE_OP_SELECT_BLOCKS, &kSelectBlocks},
};

}  // namespace

std::span<const NumberedOp> attention_ops() {
  return kOps;
}

}  // namespace quire::c

quire_status quire_flash_attention(const quire_flash_attention_args* args,
                                   const quire_context* context) {
  return quire::c::kFlashAttention.call(args, context);
}

quire_status quire_merge_states(const quire_merge_states_args* args, const quire_context* context) {
  return quire::c::kMergeStates.call(args, context);
}

quire_status quire_select_blocks(const quire_select_blocks_args* args,
                                 const quire_context* context) {
  return quire::c::kSelectBlocks.call(args, context);
}
