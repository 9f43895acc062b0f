// SPDX-License-Identifier: Apache-2.0
// remap_sparse_indices on every GPU: positions to physical rows. Starts kernels on the context's stream, allocates nothing
// and never waits.
#pragma once

#include <string>

#include "quire/ops/remap_sparse_indices.h"

namespace quire::cuda::any::remap_sparse_indices {

// Empty: any valid problem on a GPU of compute capability 8.0 or newer.
std::string refuse(const RemapSparseIndicesProblem& problem);
void remap_sparse_indices(const RemapSparseIndicesArgs& args, const Context& context);

}  // namespace quire::cuda::any::remap_sparse_indices
