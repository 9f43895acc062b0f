// SPDX-License-Identifier: Apache-2.0
// K and V rows that a product cannot store as they will stand in the pages (scales over columns of several
// tiles, parts of their own scale): they wait in the workspace as fp32 for the kernels of `store`.
#pragma once

#include <cstdint>

#include "core/projection.h"
#include "cuda/common/matmul/params.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda {

// Rows of one part, without scales: numbers that go to the pages one by one. Also no rows at all.
bool holds_plain_numbers(const RowFormat& format);
// Such that the tile kernels store.
bool holds_plain_floats(const RowFormat& format);

// [tokens, columns of K and V] f32.
std::int64_t deferred_rows_bytes(const FusedQkvProblem& problem);
// Outputs whose K and V rows are those of `rows`, by token.
QkvOutputs deferred_outputs(QkvOutputs outputs, float* rows);
// From `rows` to the pages.
void store_deferred_rows(const Projection& args, const Context& context, float* rows);

}  // namespace quire::cuda
