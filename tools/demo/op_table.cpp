// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/op_table.h"

#include "reference/copy_pages.h"
#include "reference/flash_attention.h"
#include "reference/fused_qkv_matmul.h"
#include "reference/index_rows.h"
#include "reference/linear.h"
#include "reference/merge_states.h"
#include "reference/mla_decode.h"
#include "reference/mla_indexer.h"
#include "reference/mla_prefill.h"
#include "reference/mla_prefill_plan.h"
#include "reference/quantize_fp8.h"
#include "reference/remap_sparse_indices.h"
#include "reference/rms_norm.h"
#include "reference/rope.h"
#include "reference/row_offsets.h"
#include "reference/sparse_mla.h"
#include "reference/store.h"

namespace quire::tools::demo {
namespace {

template <typename Args> Plan planned(const Args& args, const Context& context) {
  return supports(args, context);
}

// Ops that round nowhere on the way have one arithmetic only.
template <typename Args, void (*kOracle)(const Args&)>
void exact_oracle(const Args& args, reference::Arithmetic) {
  kOracle(args);
}

// New tokens of a ragged batch.
template <typename Args> std::int64_t ragged_tokens(const Args& args) {
  const TensorView& offsets = args.row_offsets;
  return offsets.as<const std::uint32_t>()[offsets.shape[0] - 1];
}

// Ops over one cache and layer.
template <typename Args> Changes changes_with_cache(Args& args) {
  return {.outputs = {},
          .caches = {{.cache = &args.cache, .layer = &args.layer}},
          .row_offsets = &args.row_offsets};
}

template <typename Args> Changes changes_with_out(Args& args) {
  Changes changes = changes_with_cache(args);
  changes.outputs.push_back({"out", &args.out});
  if constexpr (requires { args.lse; }) {
    if (args.lse) changes.outputs.push_back({"lse", &*args.lse});
  }
  return changes;
}

Changes changes_of_prefill_plan(MlaPrefillPlanArgs& args) {
  Changes changes = changes_with_cache(args);
  changes.caches[0].pages = TwinPages::same_size;  // spans are rounded up to whole pages
  changes.outputs = {{"buffer_row_offsets", &args.chunks.buffer_row_offsets},
                     {"cache_offsets", &args.chunks.cache_offsets},
                     {"buffer_lengths", &args.chunks.buffer_lengths}};
  return changes;
}

Changes changes_of_prefill(MlaPrefillArgs& args) {
  Changes changes = changes_with_out(args);
  changes.outputs.push_back({"q", &args.q});
  return changes;
}

Fault as_fault(std::string text) {
  return text.empty() ? std::nullopt : Fault(std::move(text));
}

// Keys whose scores are equal up to the rounding of fp32 sums may change places.
Fault selection_fault(const MlaIndexerArgs& args) {
  const Tensor selected = Tensor::copy_of(args.out);
  for (std::int64_t token = 0; token < args.out.shape[0]; ++token) {
    const std::int32_t* row = selected.view().as<std::int32_t>() + token * args.top_k;
    const std::string fault = reference::selection_fault(
        args, token, std::span(row, static_cast<std::size_t>(args.top_k)));
    if (!fault.empty()) return "out of token " + std::to_string(token) + ": " + fault;
  }
  return std::nullopt;
}

}  // namespace

const Op<FusedQkvArgs> kFusedQkvMatmul{.name = "fused_qkv_matmul",
                                       .run = fused_qkv_matmul,
                                       .oracle = reference::fused_qkv_matmul,
                                       .changes = changes_with_out,
                                       .plan = planned,
                                       .tokens = ragged_tokens,
                                       .has_naive = true};

const Op<LinearArgs> kLinear{.name = "linear",
                             .run = linear,
                             .oracle = reference::linear,
                             .changes =
                                 [](LinearArgs& args) {
                                   return Changes{.outputs = {{"out", &args.out}}};
                                 },
                             .plan = planned,
                             .tokens = [](const LinearArgs& args) { return args.x.shape[0]; },
                             .has_naive = true};

const Op<FlashAttentionArgs> kFlashAttention{.name = "flash_attention",
                                             .run = flash_attention,
                                             .oracle = reference::flash_attention,
                                             .changes = changes_with_out,
                                             .plan = planned,
                                             .tokens = ragged_tokens,
                                             .has_naive = true};

const Op<MlaPrefillPlanArgs> kMlaPrefillPlan{
    .name = "mla_prefill_plan",
    .run = mla_prefill_plan,
    .oracle = exact_oracle<MlaPrefillPlanArgs, reference::mla_prefill_plan>,
    .changes = changes_of_prefill_plan,
    .plan = planned,
    .tokens = ragged_tokens};

const Op<MlaPrefillArgs> kMlaPrefill{.name = "mla_prefill",
                                     .run = mla_prefill,
                                     .oracle = reference::mla_prefill,
                                     .changes = changes_of_prefill,
                                     .plan = planned,
                                     .tokens = ragged_tokens,
                                     .has_naive = true};

const Op<MlaDecodeArgs> kMlaDecode{.name = "mla_decode",
                                   .run = mla_decode,
                                   .oracle = reference::mla_decode,
                                   .changes = changes_with_out,
                                   .plan = planned,
                                   .tokens = ragged_tokens,
                                   .has_naive = true};

// fp32 sums may take a code, or a scale, to the other side of a middle: both ops are judged by the
// exact rows.
const Op<StoreIndexKeysArgs> kStoreIndexKeys{
    .name = "store_index_keys",
    .run = store_index_keys,
    .oracle = exact_oracle<StoreIndexKeysArgs, reference::store_index_keys>,
    .changes = changes_with_cache,
    .plan = planned,
    .tokens = ragged_tokens,
    .judge = [](const StoreIndexKeysArgs& args) {
      return as_fault(reference::store_index_keys_fault(args));
    }};

const Op<QuantizeIndexQueriesArgs> kQuantizeIndexQueries{
    .name = "quantize_index_queries",
    .run = quantize_index_queries,
    .oracle = reference::quantize_index_queries,
    .changes =
        [](QuantizeIndexQueriesArgs& args) {
          return Changes{.outputs = {{"out", &args.out}, {"q_scale", &args.q_scale}}};
        },
    .plan = planned,
    .tokens = ragged_tokens,
    .judge =
        [](const QuantizeIndexQueriesArgs& args) {
          return as_fault(reference::quantize_index_queries_fault(args));
        }};

const Op<MlaIndexerArgs> kMlaIndexer{.name = "mla_indexer",
                                     .run = mla_indexer,
                                     .oracle = exact_oracle<MlaIndexerArgs, reference::mla_indexer>,
                                     .changes = changes_with_out,
                                     .plan = planned,
                                     .tokens = ragged_tokens,
                                     .judge = selection_fault};

const Op<SparseMlaArgs> kSparseMla{.name = "sparse_mla",
                                   .run = sparse_mla,
                                   .oracle = reference::sparse_mla,
                                   .changes = changes_with_out,
                                   .plan = planned,
                                   .tokens = ragged_tokens,
                                   .has_naive = true};

const Op<RopeArgs> kRope{.name = "rope",
                         .run = rope,
                         .oracle = reference::rope,
                         .changes = changes_with_out,
                         .plan = planned,
                         .tokens = ragged_tokens,
                         .has_naive = true};

const Op<RmsNormArgs> kRmsNormKey{
    .name = "rms_norm_key",
    .run = [](const RmsNormArgs& args, const Context& context) { rms_norm_key(args, context); },
    .oracle = reference::rms_norm,
    .changes = changes_with_cache,
    .plan = planned,
    .tokens = ragged_tokens,
    .has_naive = true};

const Op<RmsNormArgs> kRmsNormValue{
    .name = "rms_norm_value",
    .run = [](const RmsNormArgs& args, const Context& context) { rms_norm_value(args, context); },
    .oracle = reference::rms_norm,
    .changes = changes_with_cache,
    .plan = planned,
    .tokens = ragged_tokens,
    .has_naive = true};

const Op<StoreArgs> kStore{.name = "store",
                           .run = store,
                           .oracle = exact_oracle<StoreArgs, reference::store>,
                           .changes = changes_with_cache,
                           .plan = planned,
                           .tokens = ragged_tokens};

const Op<StoreScalesArgs> kStoreScales{
    .name = "store_scales",
    .run = store_scales,
    .oracle = exact_oracle<StoreScalesArgs, reference::store_scales>,
    .changes = changes_with_cache,
    .plan = planned,
    .tokens = ragged_tokens};

const Op<MergeStatesArgs> kMergeStates{
    .name = "merge_states",
    .run = merge_states,
    .oracle = reference::merge_states,
    .changes =
        [](MergeStatesArgs& args) {
          Changes changes{.outputs = {{"out", &args.out}}};
          if (args.lse) changes.outputs.push_back({"lse", &*args.lse});
          return changes;
        },
    .plan = planned,
    .tokens = [](const MergeStatesArgs& args) { return args.out.shape[0]; },
    .has_naive = true};

const Op<QuantizeFp8Args> kQuantizeFp8{
    .name = "quantize_fp8",
    .run = quantize_fp8,
    .oracle = exact_oracle<QuantizeFp8Args, reference::quantize_fp8>,
    .changes =
        [](QuantizeFp8Args& args) {
          return Changes{.outputs = {{"out", &args.out}, {"scale", &args.scale}}};
        },
    .plan = planned,
    .tokens = [](const QuantizeFp8Args& args) { return args.x.shape[0]; }};

const Op<RowOffsetsArgs> kRowOffsets{.name = "row_offsets",
                                     .run = row_offsets,
                                     .oracle = exact_oracle<RowOffsetsArgs, reference::row_offsets>,
                                     .changes =
                                         [](RowOffsetsArgs& args) {
                                           return Changes{.outputs = {{"out", &args.out}}};
                                         },
                                     .plan = planned,
                                     .tokens = ragged_tokens};

// The result names physical rows, so the oracle must see the very same pages: no twin.
const Op<RemapSparseIndicesArgs> kRemapSparseIndices{
    .name = "remap_sparse_indices",
    .run = remap_sparse_indices,
    .oracle = exact_oracle<RemapSparseIndicesArgs, reference::remap_sparse_indices>,
    .changes =
        [](RemapSparseIndicesArgs& args) {
          return Changes{.outputs = {{"out", &args.out}}};
        },
    .plan = planned,
    .tokens = ragged_tokens};

// The oracle copies in a pool of its own.
const Op<CopyPagesArgs> kCopyPages{
    .name = "copy_pages",
    .run = copy_pages,
    .oracle = exact_oracle<CopyPagesArgs, reference::copy_pages>,
    .changes =
        [](CopyPagesArgs& args) {
          Changes changes{.outputs = {{"blocks", &args.cache.blocks}}};
          if (args.cache.scales) changes.outputs.push_back({"scales", &*args.cache.scales});
          return changes;
        },
    .plan = planned,
    .tokens =
        [](const CopyPagesArgs& args) { return args.pairs.shape[0] * args.cache.page_size(); },
    .is_copy = true};

std::vector<std::string_view> all_op_names() {
  return {kFusedQkvMatmul.name,
          kLinear.name,
          kFlashAttention.name,
          kMlaPrefillPlan.name,
          kMlaPrefill.name,
          kMlaDecode.name,
          kStoreIndexKeys.name,
          kQuantizeIndexQueries.name,
          kMlaIndexer.name,
          kSparseMla.name,
          kRope.name,
          kRmsNormKey.name,
          kRmsNormValue.name,
          kStore.name,
          kStoreScales.name,
          kMergeStates.name,
          kQuantizeFp8.name,
          kRowOffsets.name,
          kRemapSparseIndices.name,
          kCopyPages.name};
}

}  // namespace quire::tools::demo
