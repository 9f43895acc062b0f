// SPDX-License-Identifier: Apache-2.0
// The border between host code and one compiled kernel: variants/*.cu instantiate it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm90/mla_indexer/params.h"

namespace quire::cuda::sm90::mla_indexer {

template <typename Variant> void launch_index(const IndexParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_indexer
