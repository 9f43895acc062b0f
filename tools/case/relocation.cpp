// SPDX-License-Identifier: Apache-2.0
#include "tools/case/relocation.h"

#include <optional>
#include <vector>

namespace quire::tools {
namespace {

Mask moved_mask(const Mask& mask, std::int32_t at, const Relocation& move) {
  const Mask::Node& node = mask.nodes()[static_cast<std::size_t>(at)];
  switch (node.kind) {
    case MaskKind::full:
      return Mask::full();
    case MaskKind::causal:
      return Mask::causal();
    case MaskKind::sliding_window:
      return Mask::sliding_window(node.size);
    case MaskKind::chunked:
      return Mask::chunked(node.size);
    case MaskKind::tree:
      return Mask::tree(move(node.bits));
    case MaskKind::key_intervals:
      return Mask::key_intervals(move(node.begin), move(node.end));
    case MaskKind::all_of:
      return moved_mask(mask, node.left, move) & moved_mask(mask, node.right, move);
    case MaskKind::any_of:
      return moved_mask(mask, node.left, move) | moved_mask(mask, node.right, move);
  }
  return mask;
}

// Replaces whatever holds tensors, one field after the other.
class Mover {
 public:
  explicit Mover(const Relocation& move) : move_(move) {}

  template <typename... Fields> void operator()(Fields&... fields) const { (replace(fields), ...); }

 private:
  void replace(TensorView& tensor) const {
    const bool is_absent = tensor.rank == 0 && tensor.data == nullptr;
    if (!is_absent) tensor = move_(tensor);
  }
  template <typename Field> void replace(std::optional<Field>& field) const {
    if (field.has_value()) replace(*field);
  }
  void replace(PagedKVCache& cache) const {
    if (cache.blocks.rank == 0) return;  // a call without a cache
    (*this)(cache.blocks, cache.cache_lengths, cache.page_table, cache.scales,
            cache.scales_page_table, cache.value_blocks);
  }
  void replace(Weight& weight) const {
    (*this)(weight.data, weight.scale, weight.zeros, weight.perm);
  }
  void replace(Mask& mask) const {
    mask = moved_mask(mask, static_cast<std::int32_t>(mask.nodes().size()) - 1, move_);
  }
  void replace(MlaPrefillChunks& chunks) const {
    (*this)(chunks.buffer_row_offsets, chunks.cache_offsets, chunks.buffer_lengths);
  }
  void replace(SparseExtra& extra) const { (*this)(extra.cache, extra.indices, extra.lengths); }

  const Relocation& move_;
};

}  // namespace

CompressKeysArgs relocate(CompressKeysArgs args, const Relocation& move) {
  Mover{move}(args.kv, args.gate, args.bias, args.row_offsets, args.cache, args.gamma,
              args.freqs_cis, args.state, args.state_slots);
  return args;
}

CopyPagesArgs relocate(CopyPagesArgs args, const Relocation& move) {
  Mover{move}(args.cache, args.pairs);
  return args;
}

FlashAttentionArgs relocate(FlashAttentionArgs args, const Relocation& move) {
  Mover{move}(args.q, args.row_offsets, args.cache, args.mask, args.alibi_slopes, args.sinks,
              args.out, args.lse, args.key_lengths, args.k, args.v, args.key_offsets,
              args.key_blocks);
  return args;
}

FusedQkvArgs relocate(FusedQkvArgs args, const Relocation& move) {
  Mover{move}(args.x, args.row_offsets, args.weight, args.cache, args.bias, args.input_scale,
              args.out);
  return args;
}

LinearArgs relocate(LinearArgs args, const Relocation& move) {
  Mover{move}(args.x, args.weight, args.bias, args.input_scale, args.out);
  return args;
}

MergeStatesArgs relocate(MergeStatesArgs args, const Relocation& move) {
  Mover{move}(args.states, args.lses, args.out, args.lse);
  return args;
}

MlaDecodeArgs relocate(MlaDecodeArgs args, const Relocation& move) {
  Mover{move}(args.q, args.row_offsets, args.cache, args.freqs_cis, args.kv_norm_gamma, args.kv,
              args.w_uk, args.w_uk_scale, args.w_uv, args.w_uv_scale, args.mask, args.sinks,
              args.out, args.lse, args.key_lengths);
  return args;
}

MlaIndexerArgs relocate(MlaIndexerArgs args, const Relocation& move) {
  Mover{move}(args.q, args.q_scale, args.row_offsets, args.cache, args.mask, args.out, args.scores);
  return args;
}

MlaPrefillArgs relocate(MlaPrefillArgs args, const Relocation& move) {
  Mover{move}(args.q, args.row_offsets, args.cache, args.freqs_cis, args.kv_norm_gamma, args.kv,
              args.kv_b_proj, args.kv_b_proj_scale, args.chunks, args.mask, args.alibi_slopes,
              args.sinks, args.out, args.lse);
  return args;
}

MlaPrefillPlanArgs relocate(MlaPrefillPlanArgs args, const Relocation& move) {
  Mover{move}(args.row_offsets, args.cache, args.chunks);
  return args;
}

QuantizeFp8Args relocate(QuantizeFp8Args args, const Relocation& move) {
  Mover{move}(args.x, args.out, args.scale);
  return args;
}

QuantizeIndexQueriesArgs relocate(QuantizeIndexQueriesArgs args, const Relocation& move) {
  Mover{move}(args.q, args.row_offsets, args.cache, args.weights, args.freqs_cis, args.out,
              args.q_scale);
  return args;
}

RemapSparseIndicesArgs relocate(RemapSparseIndicesArgs args, const Relocation& move) {
  Mover{move}(args.indices, args.row_offsets, args.cache, args.out);
  return args;
}

RmsNormArgs relocate(RmsNormArgs args, const Relocation& move) {
  Mover{move}(args.cache, args.row_offsets, args.gamma);
  return args;
}

RopeArgs relocate(RopeArgs args, const Relocation& move) {
  Mover{move}(args.q, args.row_offsets, args.cache, args.freqs_cis, args.position_ids, args.q_gamma,
              args.key_gamma, args.out);
  return args;
}

RowOffsetsArgs relocate(RowOffsetsArgs args, const Relocation& move) {
  Mover{move}(args.row_offsets, args.cache_lengths, args.out);
  return args;
}

SelectBlocksArgs relocate(SelectBlocksArgs args, const Relocation& move) {
  Mover{move}(args.q, args.row_offsets, args.cache, args.mask, args.out);
  return args;
}

SparseMlaArgs relocate(SparseMlaArgs args, const Relocation& move) {
  Mover{move}(args.q, args.row_offsets, args.cache, args.indices, args.topk_lengths, args.sinks,
              args.extra, args.out, args.lse);
  return args;
}

StoreArgs relocate(StoreArgs args, const Relocation& move) {
  Mover{move}(args.x, args.row_offsets, args.cache, args.value, args.slots);
  return args;
}

StoreIndexKeysArgs relocate(StoreIndexKeysArgs args, const Relocation& move) {
  Mover{move}(args.x, args.row_offsets, args.cache, args.norm_weight, args.norm_bias,
              args.freqs_cis);
  return args;
}

StoreScalesArgs relocate(StoreScalesArgs args, const Relocation& move) {
  Mover{move}(args.scales, args.row_offsets, args.cache);
  return args;
}

}  // namespace quire::tools
