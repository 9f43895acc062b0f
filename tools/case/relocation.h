// SPDX-License-Identifier: Apache-2.0
// An op's arguments with every tensor moved somewhere else: the same shapes and strides over another
// machine's copy of the memory.
#pragma once

#include <functional>

#include "quire/ops/compress_keys.h"
#include "quire/ops/copy_pages.h"
#include "quire/ops/flash_attention.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "quire/ops/linear.h"
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

namespace quire::tools {

// Where a tensor stands over there. It keeps dtype, shape and strides and says its device.
using Relocation = std::function<TensorView(const TensorView&)>;

CompressKeysArgs relocate(CompressKeysArgs args, const Relocation& move);
CopyPagesArgs relocate(CopyPagesArgs args, const Relocation& move);
FlashAttentionArgs relocate(FlashAttentionArgs args, const Relocation& move);
FusedQkvArgs relocate(FusedQkvArgs args, const Relocation& move);
LinearArgs relocate(LinearArgs args, const Relocation& move);
MergeStatesArgs relocate(MergeStatesArgs args, const Relocation& move);
MlaDecodeArgs relocate(MlaDecodeArgs args, const Relocation& move);
MlaIndexerArgs relocate(MlaIndexerArgs args, const Relocation& move);
MlaPrefillArgs relocate(MlaPrefillArgs args, const Relocation& move);
MlaPrefillPlanArgs relocate(MlaPrefillPlanArgs args, const Relocation& move);
QuantizeFp8Args relocate(QuantizeFp8Args args, const Relocation& move);
QuantizeIndexQueriesArgs relocate(QuantizeIndexQueriesArgs args, const Relocation& move);
RemapSparseIndicesArgs relocate(RemapSparseIndicesArgs args, const Relocation& move);
RmsNormArgs relocate(RmsNormArgs args, const Relocation& move);
RopeArgs relocate(RopeArgs args, const Relocation& move);
RowOffsetsArgs relocate(RowOffsetsArgs args, const Relocation& move);
SelectBlocksArgs relocate(SelectBlocksArgs args, const Relocation& move);
SparseMlaArgs relocate(SparseMlaArgs args, const Relocation& move);
StoreArgs relocate(StoreArgs args, const Relocation& move);
StoreIndexKeysArgs relocate(StoreIndexKeysArgs args, const Relocation& move);
StoreScalesArgs relocate(StoreScalesArgs args, const Relocation& move);

}  // namespace quire::tools
