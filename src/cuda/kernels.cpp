// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels.h"

#include <string_view>

#include "cuda/any/companions.h"
#include "cuda/any/flash_attention/launch.h"
#include "cuda/any/fused_qkv_matmul/launch.h"
#include "cuda/any/mla_decode/launch.h"
#include "cuda/any/mla_indexer/launch.h"
#include "cuda/any/mla_prefill/launch.h"
#include "cuda/any/sparse_mla/launch.h"
#include "cuda/any/store/launch.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/sm90/flash_attention/launch.h"
#include "cuda/sm90/fused_qkv_matmul/int4/launch.h"
#include "cuda/sm90/fused_qkv_matmul/launch.h"
#include "cuda/sm90/mla_decode/launch.h"
#include "cuda/sm90/mla_indexer/launch.h"
#include "cuda/sm90/mla_prefill/launch.h"
#include "cuda/sm90/sparse_mla/launch.h"

namespace quire::cuda {
namespace {

constexpr std::string_view kAnyProblem =
    "any valid problem on a GPU of compute capability 8.0 or newer";

template <typename Problem> using Refuse = std::string (*)(const Problem&);
template <typename Problem, typename Args> using Prepare = KernelPtr<Args> (*)(const Problem&);

template <typename Problem, typename Args>
Candidate<Problem, Args> planned(std::string_view kernel, std::string_view takes,
                                 Refuse<Problem> refuse, Prepare<Problem, Args> prepare) {
  return {.kernel = std::string(kernel),
          .takes = std::string(takes),
          .refuse = refuse,
          .prepare = prepare};
}

// A kernel without a plan of its own.
template <typename Problem, typename Args>
Candidate<Problem, Args> plain(std::string_view kernel, std::string_view takes,
                               Refuse<Problem> refuse, void (*run)(const Args&, const Context&)) {
  return {.kernel = std::string(kernel),
          .takes = std::string(takes),
          .refuse = refuse,
          .prepare = always<Problem, Args>(run)};
}

// A memory-bound op that takes every problem on a GPU that it runs on.
template <typename Problem, typename Args>
Candidates<Problem, Args> companion(std::string_view kernel,
                                    void (*run)(const Args&, const Context&)) {
  const auto refuse = [](const Problem& problem) { return refuse_unless_sm80(problem.device); };
  return {plain<Problem, Args>(kernel, kAnyProblem, refuse, run)};
}

// The same of rows that have to fit into shared memory.
template <typename Problem, typename Args>
Candidates<Problem, Args> index_row_companion(std::string_view kernel,
                                              void (*run)(const Args&, const Context&)) {
  const auto refuse = [](const Problem& problem) {
    constexpr std::int64_t kMost = any::index_rows::kMostColumns;
    std::string reason = refuse_unless_sm80(problem.device);
    if (reason.empty() && problem.head_dim > kMost) {
      reason = "head_dim is " + std::to_string(problem.head_dim) + ", more than " +
               std::to_string(kMost);
    }
    return reason;
  };
  return {plain<Problem, Args>(
      kernel, "rows of up to 8192 columns on a GPU of compute capability 8.0 or newer", refuse,
      run)};
}

}  // namespace

Candidates<CopyPagesProblem, CopyPagesArgs> copy_pages_kernels() {
  return companion<CopyPagesProblem, CopyPagesArgs>("cuda/any/copy_pages",
                                                    any::copy_pages::copy_pages);
}

Candidates<FlashAttentionProblem, FlashAttentionArgs> flash_attention_kernels() {
  return {
      planned<FlashAttentionProblem, FlashAttentionArgs>(
          "cuda/sm90/cascade/flash_attention",
          "shared_prefix_pages of two sequences or more, causal or all keys, what "
          "cuda/sm90/decode/flash_attention or cuda/sm90/flash_attention take",
          sm90::flash_attention::refuse_cascade, sm90::flash_attention::prepare_cascade),
      planned<FlashAttentionProblem, FlashAttentionArgs>(
          "cuda/sm90/decode/flash_attention",
          "bf16 and f16 over an unscaled cache of the same or of e4m3, with a scale for each KV "
          "head or none, at most 16 new tokens of a sequence, heads up to 128 wide, masks that "
          "show one interval of keys and a tree in it, on a GPU of compute capability 9.0",
          sm90::flash_attention::refuse_decode,
          [](const FlashAttentionProblem& problem) {
            return any::flash_attention::with_ragged_lengths(
                problem, sm90::flash_attention::prepare_decode(problem));
          }),
      planned<FlashAttentionProblem, FlashAttentionArgs>(
          "cuda/sm90/flash_attention",
          "bf16 and f16 over an unscaled cache of the same or of e4m3, bf16 over any other where "
          "a 16-bit copy of the keys fits into 1 GiB, masks that show one interval of keys, pages "
          "of a multiple of 8, on a GPU of compute capability 9.0",
          sm90::flash_attention::refuse_tiles,
          [](const FlashAttentionProblem& problem) {
            return any::flash_attention::with_ragged_lengths(
                problem, sm90::flash_attention::prepare_tiles(problem));
          }),
      planned<FlashAttentionProblem, FlashAttentionArgs>(
          "cuda/any/flash_attention", kAnyProblem, any::flash_attention::refuse_general,
          [](const FlashAttentionProblem& problem) {
            return any::flash_attention::with_ragged_lengths(
                problem, std::make_unique<const PlainKernel<FlashAttentionArgs>>(
                             any::flash_attention::flash_attention_general));
          })};
}

Candidates<FusedQkvProblem, Projection> projection_kernels(std::string_view op) {
  const std::string name(op);
  return {planned<FusedQkvProblem, Projection>(
              "cuda/sm90/" + name,
              "bf16, f16, e4m3 or allowed tf32 products of aligned rows on a GPU of "
              "compute capability 9.0",
              sm90::fused_qkv_matmul::refuse, sm90::fused_qkv_matmul::prepare_tiles),
          planned<FusedQkvProblem, Projection>(
              "cuda/sm90/int4/" + name,
              "packed int4, gptq or awq weights, bf16 or f16 x on a GPU of "
              "compute capability 9.0",
              sm90::fused_qkv_matmul::refuse_int4, sm90::fused_qkv_matmul::prepare_int4),
          planned<FusedQkvProblem, Projection>("cuda/any/" + name, kAnyProblem,
                                               any::fused_qkv_matmul::refuse_general,
                                               any::fused_qkv_matmul::prepare_general)};
}

Candidates<MergeStatesProblem, MergeStatesArgs> merge_states_kernels() {
  return companion<MergeStatesProblem, MergeStatesArgs>("cuda/any/merge_states",
                                                        any::merge_states::merge_states);
}

Candidates<MlaDecodeProblem, MlaDecodeArgs> mla_decode_kernels() {
  return {
      planned<MlaDecodeProblem, MlaDecodeArgs>(
          "cuda/sm90/mla_decode",
          "bf16 q of at most 128 heads, absorbed or with weights of bf16 or e4m3, over bf16 rows "
          "of "
          "512 + 64 columns, pages of a multiple of 16 tokens, masks that show one interval of "
          "keys, on a GPU of compute capability 9.0",
          sm90::mla_decode::refuse_mla_decode_bf16, sm90::mla_decode::prepare_mla_decode),
      planned<MlaDecodeProblem, MlaDecodeArgs>(
          "cuda/sm90/fp8/mla_decode",
          "as cuda/sm90/mla_decode, over rows of e4m3 of 576, 640 or 656 bytes",
          sm90::mla_decode::refuse_mla_decode_fp8, sm90::mla_decode::prepare_mla_decode),
      planned<MlaDecodeProblem, MlaDecodeArgs>("cuda/any/mla_decode", kAnyProblem,
                                               any::mla_decode::refuse_general,
                                               any::mla_decode::prepare_general)};
}

Candidates<MlaIndexerProblem, MlaIndexerArgs> mla_indexer_kernels() {
  return {
      planned<MlaIndexerProblem, MlaIndexerArgs>(
          "cuda/sm90/mla_indexer",
          "4, 8, 16, 32 or 64 heads of 64 or 128 columns, pages of a multiple of 16 tokens and a "
          "top_k up to 2048 on a GPU of compute capability 9.0",
          sm90::mla_indexer::refuse_index, sm90::mla_indexer::prepare_index),
      planned<MlaIndexerProblem, MlaIndexerArgs>("cuda/any/mla_indexer", kAnyProblem,
                                                 any::mla_indexer::refuse_general,
                                                 any::mla_indexer::prepare_general)};
}

Candidates<MlaPrefillProblem, MlaPrefillArgs> mla_prefill_kernels() {
  return {planned<MlaPrefillProblem, MlaPrefillArgs>(
              "cuda/sm90/mla_prefill",
              "bf16, f16 on a GPU of compute capability 9.0; heads of 128 + 64 and 128 columns; "
              "weights of q's dtype or e4m3; masks that show one interval of keys",
              sm90::mla_prefill::refuse_branch, sm90::mla_prefill::prepare_branch),
          planned<MlaPrefillProblem, MlaPrefillArgs>("cuda/any/mla_prefill", kAnyProblem,
                                                     any::mla_prefill::refuse_general,
                                                     any::mla_prefill::prepare_general)};
}

Candidates<MlaPrefillPlanProblem, MlaPrefillPlanArgs> mla_prefill_plan_kernels() {
  return {plain<MlaPrefillPlanProblem, MlaPrefillPlanArgs>("cuda/any/mla_prefill_plan", kAnyProblem,
                                                           any::mla_prefill::refuse_plan,
                                                           any::mla_prefill::mla_prefill_plan)};
}

Candidates<QuantizeFp8Problem, QuantizeFp8Args> quantize_fp8_kernels() {
  return companion<QuantizeFp8Problem, QuantizeFp8Args>("cuda/any/quantize_fp8",
                                                        any::quantize_fp8::quantize_fp8);
}

Candidates<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs> quantize_index_queries_kernels() {
  return index_row_companion<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs>(
      "cuda/any/quantize_index_queries", any::index_rows::quantize_index_queries);
}

Candidates<RemapSparseIndicesProblem, RemapSparseIndicesArgs> remap_sparse_indices_kernels() {
  return companion<RemapSparseIndicesProblem, RemapSparseIndicesArgs>(
      "cuda/any/remap_sparse_indices", any::remap_sparse_indices::remap_sparse_indices);
}

Candidates<RmsNormProblem, RmsNormArgs> rms_norm_kernels() {
  return companion<RmsNormProblem, RmsNormArgs>("cuda/any/rms_norm", any::rms_norm::rms_norm);
}

Candidates<RopeProblem, RopeArgs> rope_kernels() {
  return companion<RopeProblem, RopeArgs>("cuda/any/rope", any::rope::rope);
}

Candidates<RowOffsetsProblem, RowOffsetsArgs> row_offsets_kernels() {
  return companion<RowOffsetsProblem, RowOffsetsArgs>("cuda/any/row_offsets",
                                                      any::row_offsets::row_offsets);
}

Candidates<SparseMlaProblem, SparseMlaArgs> sparse_mla_kernels() {
  return {planned<SparseMlaProblem, SparseMlaArgs>(
              "cuda/sm90/sparse_mla",
              "bf16 q over rows of 512 + 64 columns in bf16 or "
              "e4m3, on a GPU of compute capability 9.0",
              sm90::sparse_mla::refuse_sparse, sm90::sparse_mla::prepare_sparse),
          plain<SparseMlaProblem, SparseMlaArgs>("cuda/any/sparse_mla", kAnyProblem,
                                                 any::sparse_mla::refuse_general,
                                                 any::sparse_mla::sparse_mla_general)};
}

Candidates<StoreProblem, StoreArgs> store_kernels() {
  return {plain<StoreProblem, StoreArgs>(
      "cuda/any/store", kAnyProblem,
      [](const StoreProblem& problem) { return any::store::refuse(problem); }, any::store::store)};
}

Candidates<StoreProblem, StoreScalesArgs> store_scales_kernels() {
  return {plain<StoreProblem, StoreScalesArgs>(
      "cuda/any/store_scales", kAnyProblem,
      [](const StoreProblem& problem) { return any::store::refuse(problem); },
      any::store::store_scales)};
}

Candidates<StoreIndexKeysProblem, StoreIndexKeysArgs> store_index_keys_kernels() {
  return index_row_companion<StoreIndexKeysProblem, StoreIndexKeysArgs>(
      "cuda/any/store_index_keys", any::index_rows::store_index_keys);
}

}  // namespace quire::cuda
