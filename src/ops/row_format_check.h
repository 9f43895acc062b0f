// SPDX-License-Identifier: Apache-2.0
// A cache's row format against its blocks.
#pragma once

#include "ops/argument.h"
#include "quire/paged_kv_cache.h"

namespace quire::ops {

// The parts lie inside the row, the row is what blocks holds, and the dtypes have the scales they
// need. Blocks themselves have been checked before. Gives the format in force.
RowFormat check_row_format(const Arguments& check, const PagedKVCache& cache, const char* name);

// Dtype of the scales tensor that a format asks for; f32 if it has none.
DType plane_scale_dtype(const RowFormat& format);

}  // namespace quire::ops
