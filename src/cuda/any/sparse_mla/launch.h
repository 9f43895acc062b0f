// SPDX-License-Identifier: Apache-2.0
// sparse_mla for every valid problem on a GPU: any head count, row format and number of slots, a
// second stream or none, on fp32 multiply-adds. Starts kernels on the context's stream, allocates
// nothing and never waits.
#pragma once

#include "core/kernel.h"
#include "quire/ops/sparse_mla.h"

namespace quire::cuda::any::sparse_mla {

KernelPtr<SparseMlaArgs> prepare_general(const SparseMlaProblem& problem);

}  // namespace quire::cuda::any::sparse_mla
