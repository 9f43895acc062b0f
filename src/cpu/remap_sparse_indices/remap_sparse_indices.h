// SPDX-License-Identifier: Apache-2.0
// remap_sparse_indices on the CPU.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/remap_sparse_indices.h"

namespace quire::cpu {

void remap_sparse_indices(const RemapSparseIndicesArgs& args, const Context& context,
                          Target target);

}  // namespace quire::cpu
