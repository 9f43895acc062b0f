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
Candidates<Problem, Args> absent(std::initializer_list<const char*> kernels) {
  Candidates<Problem, Args> list;
  for (const char* kernel : kernels) {
    list.push_back({.kernel = kernel,
                    .takes = "nothing in this build",
                    .refuse = [](const Problem& problem) { return refuse(problem.device); },
                    .prepare = [](const Problem&) -> KernelPtr<Args> { throw_absent("prepare"); }});
  }
  return list;
}

}  // namespace

Candidates<CopyPagesProblem, CopyPagesArgs> copy_pages_kernels() {
  return absent<CopyPagesProblem, CopyPagesArgs>({"hopper/copy_pages"});
}
Candidates<FlashAttentionProblem, FlashAttentionArgs> flash_attention_kernels() {
  return absent<FlashAttentionProblem, FlashAttentionArgs>(
      {"hopper/cascade/flash_attention", "hopper/decode/flash_attention", "hopper/flash_attention",
       "hopper/general/flash_attention"});
}
Candidates<FusedQkvProblem, FusedQkvArgs> fused_qkv_matmul_kernels() {
  return absent<FusedQkvProblem, FusedQkvArgs>({"hopper/fused_qkv_matmul",
                                                "hopper/int4/fused_qkv_matmul",
                                                "hopper/general/fused_qkv_matmul"});
}
Candidates<MergeStatesProblem, MergeStatesArgs> merge_states_kernels() {
  return absent<MergeStatesProblem, MergeStatesArgs>({"hopper/merge_states"});
}
Candidates<MlaDecodeProblem, MlaDecodeArgs> mla_decode_kernels() {
  return absent<MlaDecodeProblem, MlaDecodeArgs>(
      {"hopper/mla_decode", "hopper/fp8/mla_decode", "hopper/general/mla_decode"});
}
Candidates<MlaIndexerProblem, MlaIndexerArgs> mla_indexer_kernels() {
  return absent<MlaIndexerProblem, MlaIndexerArgs>(
      {"hopper/mla_indexer", "hopper/general/mla_indexer"});
}
Candidates<MlaPrefillProblem, MlaPrefillArgs> mla_prefill_kernels() {
  return absent<MlaPrefillProblem, MlaPrefillArgs>(
      {"hopper/mla_prefill", "hopper/general/mla_prefill"});
}
Candidates<MlaPrefillPlanProblem, MlaPrefillPlanArgs> mla_prefill_plan_kernels() {
  return absent<MlaPrefillPlanProblem, MlaPrefillPlanArgs>({"hopper/mla_prefill_plan"});
}
Candidates<QuantizeFp8Problem, QuantizeFp8Args> quantize_fp8_kernels() {
  return absent<QuantizeFp8Problem, QuantizeFp8Args>({"hopper/quantize_fp8"});
}
Candidates<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs> quantize_index_queries_kernels() {
  return absent<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs>(
      {"hopper/quantize_index_queries"});
}
Candidates<RemapSparseIndicesProblem, RemapSparseIndicesArgs> remap_sparse_indices_kernels() {
  return absent<RemapSparseIndicesProblem, RemapSparseIndicesArgs>({"hopper/remap_sparse_indices"});
}
Candidates<RmsNormProblem, RmsNormArgs> rms_norm_kernels() {
  return absent<RmsNormProblem, RmsNormArgs>({"hopper/rms_norm"});
}
Candidates<RopeProblem, RopeArgs> rope_kernels() {
  return absent<RopeProblem, RopeArgs>({"hopper/rope"});
}
Candidates<RowOffsetsProblem, RowOffsetsArgs> row_offsets_kernels() {
  return absent<RowOffsetsProblem, RowOffsetsArgs>({"hopper/row_offsets"});
}
Candidates<SparseMlaProblem, SparseMlaArgs> sparse_mla_kernels() {
  return absent<SparseMlaProblem, SparseMlaArgs>(
      {"hopper/sparse_mla", "hopper/general/sparse_mla"});
}
Candidates<StoreProblem, StoreArgs> store_kernels() {
  return absent<StoreProblem, StoreArgs>({"hopper/store"});
}
Candidates<StoreProblem, StoreScalesArgs> store_scales_kernels() {
  return absent<StoreProblem, StoreScalesArgs>({"hopper/store_scales"});
}
Candidates<StoreIndexKeysProblem, StoreIndexKeysArgs> store_index_keys_kernels() {
  return absent<StoreIndexKeysProblem, StoreIndexKeysArgs>({"hopper/store_index_keys"});
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
