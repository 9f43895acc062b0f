// SPDX-License-Identifier: Apache-2.0
// Everything. Each op also has a header of its own.
#pragma once

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
#include "quire/ops/sparse_mla.h"
#include "quire/ops/store.h"
#include "quire/ops/store_index_keys.h"
