// SPDX-License-Identifier: Apache-2.0
#include "ops/sample.h"

#include <stdexcept>

#include "ops/sample_attention.h"
#include "ops/sample_cache_ops.h"
#include "ops/sample_compress_keys.h"
#include "ops/sample_index_rows.h"
#include "ops/sample_latent.h"
#include "ops/sample_linear.h"
#include "ops/sample_qkv.h"
#include "ops/sample_row_ops.h"
#include "ops/sample_select_blocks.h"

namespace quire::test {
namespace {

constexpr std::int64_t kNumPages = 6;
constexpr std::int64_t kNumLayers = 2;
constexpr std::int64_t kPageSize = 4;
constexpr std::int64_t kMaxPages = 3;

template <typename S> NamedSample named(const char* name) {
  return {name, [] { return std::make_unique<S>(); }};
}

}  // namespace

TensorView& Sample::tensor(const std::string& name) {
  for (const auto& [key, view] : tensors()) {
    if (key == name) return *view;
  }
  throw std::logic_error("no tensor " + name + " in " + op);
}

void Sample::move_to_gpu(int index) {
  std::uintptr_t address = 0;
  for (const auto& [name, view] : tensors()) {
    view->device = {.kind = DeviceKind::cuda, .index = index};
    view->data = reinterpret_cast<void*>(address += std::uintptr_t{1} << 40);
  }
}

PagedKVCache make_cache(Arena& arena, const CacheForm& form) {
  PagedKVCache cache;
  cache.blocks =
      arena.random(form.dtype, {kNumPages, form.kv, kNumLayers, kPageSize, form.heads, form.row});
  cache.cache_lengths = arena.of(DType::u32, {kBatch}, {3, 0});
  // 6 and 0xFFFFFFFF mean "no page"; 77 means nothing, and no key needs it.
  cache.page_table = arena.of(DType::u32, {kBatch, kMaxPages}, {4, 1, 6, 2, 4294967295.0, 77});
  if (form.slots > 0) {
    cache.scales = arena.filled(
        DType::f32, {kNumPages, form.kv, kNumLayers, kPageSize, form.heads, form.slots}, 0.125);
  }
  return cache;
}

TensorView make_row_offsets(Arena& arena) {
  return arena.of(DType::u32, {kBatch + 1}, {0, 2, 5});
}

void list_cache(PagedKVCache& cache, const std::string& name,
                std::vector<std::pair<std::string, TensorView*>>& list) {
  list.emplace_back(name + ".blocks", &cache.blocks);
  for (auto& [field, view] : {std::pair{".cache_lengths", &cache.cache_lengths},
                              std::pair{".page_table", &cache.page_table}}) {
    const bool is_absent = view->rank == 0 && view->data == nullptr;
    if (!is_absent) list.emplace_back(name + field, view);
  }
  if (cache.scales) list.emplace_back(name + ".scales", &*cache.scales);
  if (cache.scales_page_table) {
    list.emplace_back(name + ".scales_page_table", &*cache.scales_page_table);
  }
}

const std::vector<NamedSample>& all_samples() {
  static const std::vector<NamedSample> samples{
      named<FusedQkvSample>("fused_qkv_matmul"),
      named<FusedQkvFp8Sample>("fused_qkv_matmul_fp8"),
      named<FusedQkvInt4Sample>("fused_qkv_matmul_int4"),
      named<FusedQkvGptqSample>("fused_qkv_matmul_gptq"),
      named<FusedQkvAwqSample>("fused_qkv_matmul_awq"),
      named<FusedQkvGgufSample>("fused_qkv_matmul_gguf"),
      named<FusedQkvMlaSample>("fused_qkv_matmul_mla"),
      named<FlashAttentionSample>("flash_attention"),
      named<FlashAttentionInt8Sample>("flash_attention_int8"),
      named<FlashAttentionKeysSample>("flash_attention_keys"),
      named<FlashAttentionBlocksSample>("flash_attention_blocks"),
      named<FlashAttentionIntervalsSample>("flash_attention_intervals"),
      named<FlashAttentionRaggedSample>("flash_attention_ragged"),
      named<MlaPrefillPlanSample>("mla_prefill_plan"),
      named<MlaPrefillSample>("mla_prefill"),
      named<MlaPrefillFp8Sample>("mla_prefill_fp8"),
      named<MlaDecodeSample>("mla_decode"),
      named<MlaDecodeAbsorbedSample>("mla_decode_absorbed"),
      named<MlaIndexerSample>("mla_indexer"),
      named<SparseMlaSample>("sparse_mla"),
      named<RopeSample>("rope"),
      named<RopePositionsSample>("rope_positions"),
      named<RopeNormedSample>("rope_normed"),
      named<RmsNormKeySample>("rms_norm_key"),
      named<RmsNormValueSample>("rms_norm_value"),
      named<StoreSample>("store"),
      named<StoreSlotsSample>("store_slots"),
      named<StoreScalesSample>("store_scales"),
      named<CopyPagesSample>("copy_pages"),
      named<RemapSparseIndicesSample>("remap_sparse_indices"),
      named<MergeStatesSample>("merge_states"),
      named<QuantizeFp8Sample>("quantize_fp8"),
      named<StoreIndexKeysSample>("store_index_keys"),
      named<QuantizeIndexQueriesSample>("quantize_index_queries"),
      named<RowOffsetsSample>("row_offsets"),
      named<LinearSample>("linear"),
      named<LinearFp8Sample>("linear_fp8"),
      named<LinearGptqSample>("linear_gptq"),
      named<LinearGgufSample>("linear_gguf"),
      named<CompressKeysSample>("compress_keys"),
      named<SelectBlocksSample>("select_blocks"),
  };
  return samples;
}

}  // namespace quire::test
