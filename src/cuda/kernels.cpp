// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels.h"

#include <algorithm>
#include <functional>
#include <string>

#include "cuda/any/companions.h"
#include "cuda/any/flash_attention/launch.h"
#include "cuda/any/fused_qkv_matmul/launch.h"
#include "cuda/any/mla_decode/launch.h"
#include "cuda/any/mla_indexer/launch.h"
#include "cuda/any/mla_prefill/launch.h"
#include "cuda/any/select_blocks/launch.h"
#include "cuda/any/sparse_mla/launch.h"
#include "cuda/any/store/launch.h"
#include "cuda/common/mask/mask_program.h"
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

constexpr const char* kAnyProblem = "any valid problem on a GPU of compute capability 8.0 or newer";

// None of the kernels takes the codes of 4-bit rows apart.
bool has_nibbles(const RowFormat& format) {
  return std::ranges::any_of(
      format.parts, [](const RowPart& part) { return part.width > 0 && bits(part.dtype) == 4; });
}
template <typename Problem> std::string refuse_nibbles(const Problem& problem) {
  if constexpr (requires { problem.cache.row_format; }) {
    if (has_nibbles(problem.cache.row_format)) return "rows of the cache have 4-bit codes";
  }
  if constexpr (requires { problem.extra_format; }) {
    if (has_nibbles(problem.extra_format)) return "rows of the extra cache have 4-bit codes";
  }
  return "";
}

// The candidate, where rows are such that kernels of a GPU read and write them.
template <typename Problem, typename Args>
Candidate<Problem, Args> over_whole_bytes(Candidate<Problem, Args> candidate) {
  candidate.refuse = [refuse = std::move(candidate.refuse)](const Problem& problem) {
    std::string reason = refuse_nibbles(problem);
    return reason.empty() ? refuse(problem) : reason;
  };
  return candidate;
}

// What most kernels of sm90/ do not read, whatever else they take; those of any/ do.
bool has_power_scales(const RowFormat& format) {
  return std::ranges::any_of(format.parts,
                             [](const RowPart& part) { return part.scale_dtype == DType::e8m0; });
}
template <typename Problem> std::string refuse_power_scales(const Problem& problem) {
  if constexpr (requires { problem.cache.row_format; }) {
    if (has_power_scales(problem.cache.row_format)) return "scales are e8m0";
  }
  return "";
}

// A kernel with a plan of its own.
template <typename Problem, typename Args>
Candidate<Problem, Args> planned(std::string kernel, const char* takes,
                                 std::string (*refuse)(const Problem&),
                                 KernelPtr<Args> (*prepare)(const Problem&)) {
  return over_whole_bytes<Problem, Args>(
      {.kernel = std::move(kernel), .takes = takes, .refuse = refuse, .prepare = prepare});
}

// One of sm90/ that does not: its own reasons first.
template <typename Problem, typename Args>
Candidate<Problem, Args> hopper(std::string kernel, const char* takes,
                                std::string (*refuse)(const Problem&),
                                KernelPtr<Args> (*prepare)(const Problem&)) {
  const auto refuse_both = [refuse](const Problem& problem) {
    std::string reason = refuse(problem);
    return reason.empty() ? refuse_power_scales(problem) : reason;
  };
  return over_whole_bytes<Problem, Args>(
      {.kernel = std::move(kernel), .takes = takes, .refuse = refuse_both, .prepare = prepare});
}

// What a kernel for every GPU does not take: tensors elsewhere, or a mask of more joins than a launch can carry.
template <typename Problem> std::string refuse_anywhere(const Problem& problem) {
  std::string elsewhere = refuse_unless_sm80(problem.device);
  if constexpr (requires { problem.mask; }) {
    if (elsewhere.empty()) return refuse_mask(problem.mask);
  }
  return elsewhere;
}

template <typename Problem, typename Args>
Candidate<Problem, Args> general(const char* kernel, KernelPtr<Args> (*prepare)(const Problem&)) {
  return planned(kernel, kAnyProblem, refuse_anywhere<Problem>, prepare);
}

// The only kernel of an op, without a plan of its own.
template <typename Problem, typename Args>
Candidates<Problem, Args> plain(const char* kernel, void (*run)(const Args&, const Context&),
                                std::string (*refuse)(const Problem&) = refuse_anywhere<Problem>) {
  return {over_whole_bytes<Problem, Args>({.kernel = kernel,
                                           .takes = kAnyProblem,
                                           .refuse = refuse,
                                           .prepare = always<Problem, Args>(run)})};
}

constexpr const char* kWideRows =
    "rows of up to 8192 columns on a GPU of compute capability 8.0 or newer";

// Rows that have to fit into shared memory.
std::string refuse_wide_rows(const char* name, std::int64_t columns, std::int64_t most) {
  if (columns <= most) return "";
  return std::string(name) + " is " + std::to_string(columns) + ", more than " +
         std::to_string(most);
}

// The only kernel of an op of such rows.
template <typename Problem, typename Args>
Candidates<Problem, Args> plain_index_rows(const char* kernel,
                                           void (*run)(const Args&, const Context&)) {
  const auto refuse = [](const Problem& problem) {
    const std::string elsewhere = refuse_unless_sm80(problem.device);
    return elsewhere.empty()
               ? refuse_wide_rows("head_dim", problem.head_dim, any::index_rows::kMostColumns)
               : elsewhere;
  };
  return {over_whole_bytes<Problem, Args>({.kernel = kernel,
                                           .takes = kWideRows,
                                           .refuse = refuse,
                                           .prepare = always<Problem, Args>(run)})};
}

using PrepareAttention = KernelPtr<FlashAttentionArgs>(const FlashAttentionProblem&);

// A kernel over pages that takes K and V of a ragged batch too.
template <PrepareAttention kPrepare>
KernelPtr<FlashAttentionArgs> or_ragged(const FlashAttentionProblem& problem) {
  return any::flash_attention::with_ragged_lengths(problem, kPrepare(problem));
}

}  // namespace

Candidates<CompressKeysProblem, CompressKeysArgs> compress_keys_kernels() {
  const auto refuse = [](const CompressKeysProblem& problem) {
    const std::string elsewhere = refuse_unless_sm80(problem.device);
    return elsewhere.empty()
               ? refuse_wide_rows("width", problem.width, any::compress_keys::kMostColumns)
               : elsewhere;
  };
  return {over_whole_bytes<CompressKeysProblem, CompressKeysArgs>(
      {.kernel = "cuda/any/compress_keys",
       .takes = kWideRows,
       .refuse = refuse,
       .prepare =
           always<CompressKeysProblem, CompressKeysArgs>(any::compress_keys::compress_keys)})};
}

Candidates<CopyPagesProblem, CopyPagesArgs> copy_pages_kernels() {
  return plain<CopyPagesProblem>("cuda/any/copy_pages", any::copy_pages::copy_pages);
}

Candidates<FlashAttentionProblem, FlashAttentionArgs> flash_attention_kernels() {
  using namespace sm90::flash_attention;
  return {
      hopper("cuda/sm90/cascade/flash_attention",
             "shared_prefix_pages of two sequences or more, causal or all keys, what "
             "cuda/sm90/decode/flash_attention or cuda/sm90/flash_attention take",
             refuse_cascade, prepare_cascade),
      hopper(
          "cuda/sm90/decode/flash_attention",
          "bf16 and f16 over an unscaled cache of the same or of e4m3, with a scale for each KV "
          "head or none, at most 16 new tokens of a sequence, heads up to 128 wide (256 with up to "
          "8 heads to a KV head and few new tokens, not over f16), masks that "
          "show one interval of keys and a tree in it; of key_blocks any number of new tokens, "
          "blocks of whole pages, "
          "causal or all keys, on a GPU of compute capability 9.0",
          refuse_decode, or_ragged<prepare_decode>),
      hopper(
          "cuda/sm90/flash_attention",
          "bf16 and f16 over an unscaled cache of the same or of e4m3, bf16 over any other where "
          "a 16-bit copy of the keys fits into 1 GiB, masks that show one interval of keys, pages "
          "of a multiple of 8, on a GPU of compute capability 9.0",
          refuse_tiles, or_ragged<prepare_tiles>),
      general("cuda/any/flash_attention", or_ragged<any::flash_attention::prepare_general>)};
}

Candidates<FusedQkvProblem, Projection> projection_kernels(std::string_view op) {
  using namespace sm90::fused_qkv_matmul;
  const std::string name(op);
  return {hopper("cuda/sm90/" + name,
                 "bf16, f16, e4m3 or allowed tf32 products of aligned rows on a GPU of "
                 "compute capability 9.0",
                 refuse, prepare_tiles),
          hopper("cuda/sm90/int4/" + name,
                 "packed int4, gptq or awq weights, bf16 or f16 x on a GPU of "
                 "compute capability 9.0",
                 refuse_int4, prepare_int4),
          planned("cuda/any/" + name, kAnyProblem, any::fused_qkv_matmul::refuse_general,
                  any::fused_qkv_matmul::prepare_general)};
}

Candidates<MergeStatesProblem, MergeStatesArgs> merge_states_kernels() {
  return plain<MergeStatesProblem>("cuda/any/merge_states", any::merge_states::merge_states);
}

Candidates<MlaDecodeProblem, MlaDecodeArgs> mla_decode_kernels() {
  using namespace sm90::mla_decode;
  return {hopper("cuda/sm90/mla_decode",
                 "bf16 q of at most 128 heads, absorbed or with weights of bf16 or e4m3, over bf16 "
                 "rows of 512 + 64 columns, pages of a multiple of 16 tokens, masks that show one "
                 "interval of keys, on a GPU of compute capability 9.0",
                 refuse_mla_decode_bf16, prepare_mla_decode),
          hopper("cuda/sm90/fp8/mla_decode",
                 "as cuda/sm90/mla_decode, over rows of e4m3 of 576, 640 or 656 bytes",
                 refuse_mla_decode_fp8, prepare_mla_decode),
          general("cuda/any/mla_decode", any::mla_decode::prepare_general)};
}

Candidates<MlaIndexerProblem, MlaIndexerArgs> mla_indexer_kernels() {
  return {planned("cuda/sm90/mla_indexer",
                  "4, 8, 16, 32 or 64 heads of 64 or 128 columns, pages of a multiple of 16 tokens "
                  "and a top_k up to 2048 on a GPU of compute capability 9.0",
                  sm90::mla_indexer::refuse_index, sm90::mla_indexer::prepare_index),
          general("cuda/any/mla_indexer", any::mla_indexer::prepare_general)};
}

Candidates<MlaPrefillProblem, MlaPrefillArgs> mla_prefill_kernels() {
  return {hopper("cuda/sm90/mla_prefill",
                 "bf16, f16 on a GPU of compute capability 9.0; heads of 128 + 64 and 128 columns; "
                 "weights of q's dtype or e4m3; masks that show one interval of keys",
                 sm90::mla_prefill::refuse_branch, sm90::mla_prefill::prepare_branch),
          general("cuda/any/mla_prefill", any::mla_prefill::prepare_general)};
}

Candidates<MlaPrefillPlanProblem, MlaPrefillPlanArgs> mla_prefill_plan_kernels() {
  return plain<MlaPrefillPlanProblem>("cuda/any/mla_prefill_plan",
                                      any::mla_prefill::mla_prefill_plan);
}

Candidates<QuantizeFp8Problem, QuantizeFp8Args> quantize_fp8_kernels() {
  return plain<QuantizeFp8Problem>("cuda/any/quantize_fp8", any::quantize_fp8::quantize_fp8);
}

Candidates<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs> quantize_index_queries_kernels() {
  return plain_index_rows<QuantizeIndexQueriesProblem>("cuda/any/quantize_index_queries",
                                                       any::index_rows::quantize_index_queries);
}

Candidates<RemapSparseIndicesProblem, RemapSparseIndicesArgs> remap_sparse_indices_kernels() {
  return plain<RemapSparseIndicesProblem>("cuda/any/remap_sparse_indices",
                                          any::remap_sparse_indices::remap_sparse_indices);
}

Candidates<RmsNormProblem, RmsNormArgs> rms_norm_kernels() {
  return plain<RmsNormProblem>("cuda/any/rms_norm", any::rms_norm::rms_norm);
}

Candidates<RopeProblem, RopeArgs> rope_kernels() {
  return plain<RopeProblem>("cuda/any/rope", any::rope::rope);
}

Candidates<RowOffsetsProblem, RowOffsetsArgs> row_offsets_kernels() {
  return plain<RowOffsetsProblem>("cuda/any/row_offsets", any::row_offsets::row_offsets);
}

Candidates<SelectBlocksProblem, SelectBlocksArgs> select_blocks_kernels() {
  return {general("cuda/any/select_blocks", any::select_blocks::prepare_general)};
}

Candidates<SparseMlaProblem, SparseMlaArgs> sparse_mla_kernels() {
  return {
      planned(
          "cuda/sm90/sparse_mla",
          "bf16 q over rows of 512 + 64 columns in bf16 or e4m3, or of 512 that are all values, "
          "in bf16 or as 448 of e4m3 with e8m0 scales and 64 of bf16, on a GPU of compute "
          "capability 9.0",
          sm90::sparse_mla::refuse_sparse, sm90::sparse_mla::prepare_sparse),
      general("cuda/any/sparse_mla", any::sparse_mla::prepare_general)};
}

Candidates<StoreProblem, StoreArgs> store_kernels() {
  return plain<StoreProblem>("cuda/any/store", any::store::store, any::store::refuse);
}

Candidates<StoreProblem, StoreScalesArgs> store_scales_kernels() {
  return plain<StoreProblem>("cuda/any/store_scales", any::store::store_scales, any::store::refuse);
}

Candidates<StoreIndexKeysProblem, StoreIndexKeysArgs> store_index_keys_kernels() {
  return plain_index_rows<StoreIndexKeysProblem>("cuda/any/store_index_keys",
                                                 any::index_rows::store_index_keys);
}

}  // namespace quire::cuda
