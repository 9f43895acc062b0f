// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/matmul/int4/pack_order.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

void launch_pack(const Int4Source& from, const Int4Order& order, std::byte* storage,
                 cudaStream_t stream);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
