// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUDA backend, for each op best first: all that src/ops knows of it. No CUDA headers. A build without
// nvcc has the same lists (absent/kernels.cpp), in which all refuse.
#pragma once

#include <string_view>

#include "core/kernel.h"
#include "core/projection.h"
#include "quire/ops/compress_keys.h"
#include "quire/ops/copy_pages.h"
#include "quire/ops/flash_attention.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "quire/ops/merge_states.h"
#include "quire/ops/mla_decode.h"
#include "quire/ops/mla_indexer.h"
#include "quire/ops/mla_prefill.h"
#include "quire/ops/quantize_fp8.h"
#include "quire/ops/quantize_index_queries.h"
#include "quire/ops/remap_sparse_indices.h"
#include "quire/ops/rms_norm.h"
#include "quire/ops/rope.h"
#include "quire/ops/row_offsets.h"
#include "quire/ops/select_blocks.h"
#include "quire/ops/sparse_mla.h"
#include "quire/ops/store.h"
#include "quire/ops/store_index_keys.h"

namespace quire::cuda {

Candidates<CompressKeysProblem, CompressKeysArgs> compress_keys_kernels();
Candidates<CopyPagesProblem, CopyPagesArgs> copy_pages_kernels();
Candidates<FlashAttentionProblem, FlashAttentionArgs> flash_attention_kernels();
Candidates<MergeStatesProblem, MergeStatesArgs> merge_states_kernels();
Candidates<MlaDecodeProblem, MlaDecodeArgs> mla_decode_kernels();
Candidates<MlaIndexerProblem, MlaIndexerArgs> mla_indexer_kernels();
Candidates<MlaPrefillProblem, MlaPrefillArgs> mla_prefill_kernels();
Candidates<MlaPrefillPlanProblem, MlaPrefillPlanArgs> mla_prefill_plan_kernels();
// Of fused_qkv_matmul and linear, under the name of the op: they plan a problem without KV heads where there is no cache.
Candidates<FusedQkvProblem, Projection> projection_kernels(std::string_view op);
Candidates<QuantizeFp8Problem, QuantizeFp8Args> quantize_fp8_kernels();
Candidates<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs> quantize_index_queries_kernels();
Candidates<RemapSparseIndicesProblem, RemapSparseIndicesArgs> remap_sparse_indices_kernels();
Candidates<RmsNormProblem, RmsNormArgs> rms_norm_kernels();
Candidates<RopeProblem, RopeArgs> rope_kernels();
Candidates<RowOffsetsProblem, RowOffsetsArgs> row_offsets_kernels();
Candidates<SelectBlocksProblem, SelectBlocksArgs> select_blocks_kernels();
Candidates<SparseMlaProblem, SparseMlaArgs> sparse_mla_kernels();
Candidates<StoreProblem, StoreArgs> store_kernels();
Candidates<StoreProblem, StoreScalesArgs> store_scales_kernels();
Candidates<StoreIndexKeysProblem, StoreIndexKeysArgs> store_index_keys_kernels();

namespace sm90::fused_qkv_matmul {

// Empty, or why no Hopper kernel reads the weight packed.
std::string refuse_packing(const Weight& weight);
// A plain weight as it will be once it is packed, but for its data and perm.
Weight packed_form(const Weight& weight);
// Size of the storage of such a form.
std::int64_t packed_bytes(const Weight& form, bool has_perm);
// Fills the storage on the context's stream and returns its view.
Weight pack_weight(const Weight& weight, std::byte* storage, const Context& context);

}  // namespace sm90::fused_qkv_matmul

}  // namespace quire::cuda
