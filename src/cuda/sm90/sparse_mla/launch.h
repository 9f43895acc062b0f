// SPDX-License-Identifier: Apache-2.0
// sparse_mla on tensor cores: rows of 512 + 64 columns in bf16 or e4m3, gathered from their pages.
// Starts kernels on the context's stream, allocates nothing and never waits.
#pragma once

#include <string>

#include "core/kernel.h"
#include "quire/ops/sparse_mla.h"

namespace quire::cuda::sm90::sparse_mla {

std::string refuse_sparse(const SparseMlaProblem& problem);
KernelPtr<SparseMlaArgs> prepare_sparse(const SparseMlaProblem& problem);

}  // namespace quire::cuda::sm90::sparse_mla
