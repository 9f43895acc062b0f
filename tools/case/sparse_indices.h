// SPDX-License-Identifier: Apache-2.0
// The chosen positions of a sparse case, i32 [tokens, top_k].
//   "chosen"    what an indexer gives: distinct positions in ascending order, then -1
//   "hostile"   anything goes: -1 between, duplicates, positions past the end, other negatives
//   "none"      -1 everywhere
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/case/built.h"

namespace quire::tools {

struct SparseIndices {
  TensorView indices;                   // i32 [tokens, top_k]
  std::optional<TensorView> lengths{};  // i32 [tokens]
};

SparseIndices build_sparse_indices(Memory& memory, const std::string& name, const std::string& kind,
                                   std::int64_t top_k, bool with_lengths, const Lengths& lengths,
                                   std::uint64_t seed, std::int64_t tokens_per_row = 1);

// Slots that count, per token: in front of the token's length, inside its sequence, on a page that
// is there.
std::vector<std::int64_t> count_present(const SparseIndices& sparse, const CacheSpec& cache,
                                        const Lengths& lengths, std::int64_t tokens_per_row = 1);

}  // namespace quire::tools
