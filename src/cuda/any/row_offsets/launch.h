// SPDX-License-Identifier: Apache-2.0
// row_offsets on every GPU: prefix sums of the keys. Starts kernels on the context's stream, allocates nothing
// and never waits.
#pragma once

#include <string>

#include "quire/ops/row_offsets.h"

namespace quire::cuda::any::row_offsets {

// Empty: any valid problem on a GPU of compute capability 8.0 or newer.
std::string refuse(const RowOffsetsProblem& problem);
void row_offsets(const RowOffsetsArgs& args, const Context& context);

}  // namespace quire::cuda::any::row_offsets
