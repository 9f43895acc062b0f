// SPDX-License-Identifier: Apache-2.0
// What mla_indexer and the ops that prepare its rows share: the cache's keys, and the steps between
// a raw row and its codes.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/argument.h"
#include "ops/cache_check.h"

namespace quire::ops {

// One e4m3 part with one f32 scale per token, beside the row or in it.
void check_index_keys(const Arguments& check, const RowFormat& format);

struct IndexRowSteps {
  const std::optional<TensorView>& freqs_cis;
  bool hadamard;
};

// freqs_cis has a row for every position and an even number of columns, at most head_dim; a row
// that Hadamard's matrix multiplies has a power of two of them. Gives rope_dim, 0 without rope.
std::int64_t check_index_row(Arguments& check, const IndexRowSteps& steps, std::int64_t head_dim,
                             const PagedBatch& batch);

}  // namespace quire::ops
