// SPDX-License-Identifier: Apache-2.0
// sparse_mla for every valid problem on a GPU: any head count, row format and number of slots, a
// second stream or none, on fp32 multiply-adds. Starts kernels on the context's stream, allocates
// nothing and never waits.
#pragma once

#include <string>

#include "quire/ops/sparse_mla.h"

namespace quire::cuda::any::sparse_mla {

// Empty: any valid problem on a GPU of compute capability 8.0 or newer.
std::string refuse_general(const SparseMlaProblem& problem);
void sparse_mla_general(const SparseMlaArgs& args, const Context& context);

}  // namespace quire::cuda::any::sparse_mla
