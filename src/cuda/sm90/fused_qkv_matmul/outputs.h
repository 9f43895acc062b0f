// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/projection.h"
#include "cuda/common/matmul/params.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

QkvOutputs make_outputs(const Projection& args);

// K and V rows that the tile kernels store as codes with scales (common/matmul/quantized_kv_epilogue.cuh).

// Columns that share a scale; 0 where the rows are of another kind.
int coded_granule(const RowFormat& format, std::int64_t q_dim, bool is_mla);
// Of rows that have such granules.
KvCodes make_codes(const Projection& args);

// The scales of an fp8 product, as its kernels receive them.

// All empty where there are none.
QkvScales make_scales(const Projection& args);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
