// SPDX-License-Identifier: Apache-2.0
// Logical positions → physical rows, page · page_size + row in page.
#pragma once

#include "quire/ops/remap_sparse_indices.h"

namespace quire::reference {

void remap_sparse_indices(const RemapSparseIndicesArgs& args);

}  // namespace quire::reference
