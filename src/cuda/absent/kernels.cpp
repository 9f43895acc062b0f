// SPDX-License-Identifier: Apache-2.0
// Stands in for the CUDA backend where there is no nvcc: the same candidates, which refuse.
#include "cuda/kernels.h"

#include <initializer_list>

#include "cuda/common/runtime/device_values.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

std::string refuse(Device device) {
  if (device.kind != DeviceKind::cuda) return "tensors are on " + to_string(device);
  return "this build has no CUDA";
}

// Reached only past a refusal, which would be a mistake of ours.
[[noreturn]] void throw_absent(const char* op) {
  throw Error(ErrorCode::unsupported, op, "device", "one that this build serves",
              "cuda in a build without CUDA");
}

// Under the names of the real ones: plans list the same kernels in every build.
template <typename Problem, typename Args>
Candidates<Problem, Args> absent(std::initializer_list<std::string> kernels) {
  Candidates<Problem, Args> list;
  for (const std::string& kernel : kernels) {
    list.push_back({.kernel = kernel,
                    .takes = "nothing in this build",
                    .refuse = [](const Problem& problem) { return refuse(problem.device); },
                    .prepare = [](const Problem&) -> KernelPtr<Args> { throw_absent("prepare"); }});
  }
  return list;
}

}  // namespace

Candidates<CompressKeysProblem, CompressKeysArgs> compress_keys_kernels() {
  return absent<CompressKeysProblem, CompressKeysArgs>({"cuda/any/compress_keys"});
}
Candidates<CopyPagesProblem, CopyPagesArgs> copy_pages_kernels() {
  return absent<CopyPagesProblem, CopyPagesArgs>({"cuda/any/copy_pages"});
}
Candidates<FlashAttentionProblem, FlashAttentionArgs> flash_attention_kernels() {
  return absent<FlashAttentionProblem, FlashAttentionArgs>(
      {"cuda/sm90/cascade/flash_attention", "cuda/sm90/decode/flash_attention",
       "cuda/sm90/flash_attention", "cuda/any/flash_attention"});
}
Candidates<MergeStatesProblem, MergeStatesArgs> merge_states_kernels() {
  return absent<MergeStatesProblem, MergeStatesArgs>({"cuda/any/merge_states"});
}
Candidates<MlaDecodeProblem, MlaDecodeArgs> mla_decode_kernels() {
  return absent<MlaDecodeProblem, MlaDecodeArgs>(
      {"cuda/sm90/mla_decode", "cuda/sm90/fp8/mla_decode", "cuda/any/mla_decode"});
}
Candidates<MlaIndexerProblem, MlaIndexerArgs> mla_indexer_kernels() {
  return absent<MlaIndexerProblem, MlaIndexerArgs>(
      {"cuda/sm90/mla_indexer", "cuda/any/mla_indexer"});
}
Candidates<MlaPrefillProblem, MlaPrefillArgs> mla_prefill_kernels() {
  return absent<MlaPrefillProblem, MlaPrefillArgs>(
      {"cuda/sm90/mla_prefill", "cuda/any/mla_prefill"});
}
Candidates<MlaPrefillPlanProblem, MlaPrefillPlanArgs> mla_prefill_plan_kernels() {
  return absent<MlaPrefillPlanProblem, MlaPrefillPlanArgs>({"cuda/any/mla_prefill_plan"});
}
Candidates<FusedQkvProblem, Projection> projection_kernels(std::string_view op) {
  const std::string name(op);
  return absent<FusedQkvProblem, Projection>(
      {"cuda/sm90/" + name, "cuda/sm90/int4/" + name, "cuda/any/" + name});
}
Candidates<QuantizeFp8Problem, QuantizeFp8Args> quantize_fp8_kernels() {
  return absent<QuantizeFp8Problem, QuantizeFp8Args>({"cuda/any/quantize_fp8"});
}
Candidates<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs> quantize_index_queries_kernels() {
  return absent<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs>(
      {"cuda/any/quantize_index_queries"});
}
Candidates<RemapSparseIndicesProblem, RemapSparseIndicesArgs> remap_sparse_indices_kernels() {
  return absent<RemapSparseIndicesProblem, RemapSparseIndicesArgs>(
      {"cuda/any/remap_sparse_indices"});
}
Candidates<RmsNormProblem, RmsNormArgs> rms_norm_kernels() {
  return absent<RmsNormProblem, RmsNormArgs>({"cuda/any/rms_norm"});
}
Candidates<RopeProblem, RopeArgs> rope_kernels() {
  return absent<RopeProblem, RopeArgs>({"cuda/any/rope"});
}
Candidates<RowOffsetsProblem, RowOffsetsArgs> row_offsets_kernels() {
  return absent<RowOffsetsProblem, RowOffsetsArgs>({"cuda/any/row_offsets"});
}
Candidates<SelectBlocksProblem, SelectBlocksArgs> select_blocks_kernels() {
  return absent<SelectBlocksProblem, SelectBlocksArgs>({"cuda/any/select_blocks"});
}
Candidates<SparseMlaProblem, SparseMlaArgs> sparse_mla_kernels() {
  return absent<SparseMlaProblem, SparseMlaArgs>({"cuda/sm90/sparse_mla", "cuda/any/sparse_mla"});
}
Candidates<StoreProblem, StoreArgs> store_kernels() {
  return absent<StoreProblem, StoreArgs>({"cuda/any/store"});
}
Candidates<StoreProblem, StoreScalesArgs> store_scales_kernels() {
  return absent<StoreProblem, StoreScalesArgs>({"cuda/any/store_scales"});
}
Candidates<StoreIndexKeysProblem, StoreIndexKeysArgs> store_index_keys_kernels() {
  return absent<StoreIndexKeysProblem, StoreIndexKeysArgs>({"cuda/any/store_index_keys"});
}

bool is_capturing(void*) {
  return false;
}

std::vector<std::byte> download(const TensorView&, void*) {
  throw_absent("download");
}

namespace sm90::fused_qkv_matmul {

std::string refuse_packing(const Weight& weight) {
  return refuse(weight.data.device);
}

Weight packed_form(const Weight&) {
  throw_absent("pack_weight");
}

std::int64_t packed_bytes(const Weight&, bool) {
  return 0;
}

Weight pack_weight(const Weight&, std::byte*, const Context&) {
  throw_absent("pack_weight");
}

}  // namespace sm90::fused_qkv_matmul
}  // namespace quire::cuda
