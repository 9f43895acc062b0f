// SPDX-License-Identifier: Apache-2.0
#include "tools/case/sparse_indices.h"

#include <algorithm>
#include <limits>

#include "tools/case/random_stream.h"

namespace quire::tools {
namespace {

// One position from each of `count` bins of [0, bound): distinct and ascending.
void choose(std::int32_t* row, std::int64_t top_k, std::int64_t bound, std::uint64_t seed) {
  const std::int64_t count = std::min(top_k, bound);
  for (std::int64_t j = 0; j < top_k; ++j) {
    if (j >= count) {
      row[j] = -1;
      continue;
    }
    const std::int64_t first = j * bound / count;
    const std::int64_t last = (j + 1) * bound / count;
    row[j] = static_cast<std::int32_t>(
        first + integer_at(seed, static_cast<std::uint64_t>(j), last - first));
  }
}

void scatter(std::int32_t* row, std::int64_t top_k, std::int64_t keys, std::uint64_t seed) {
  for (std::int64_t j = 0; j < top_k; ++j) {
    const auto index = static_cast<std::uint64_t>(2 * j);
    const auto position =
        static_cast<std::int32_t>(integer_at(seed, index, std::max<std::int64_t>(keys, 1)));
    switch (integer_at(seed, index + 1, 8)) {
      case 0:
        row[j] = -1;
        break;
      case 1:
        row[j] = static_cast<std::int32_t>(keys);  // the first position past the end
        break;
      case 2:
        row[j] = j % 2 == 0 ? std::numeric_limits<std::int32_t>::max()
                            : std::numeric_limits<std::int32_t>::min();
        break;
      case 3:
        row[j] = j > 0 ? row[j - 1] : position;
        break;
      default:
        row[j] = position;
    }
  }
}

}  // namespace

SparseIndices build_sparse_indices(Memory& memory, const std::string& name, const std::string& kind,
                                   std::int64_t top_k, bool with_lengths, const Lengths& lengths,
                                   std::uint64_t seed, std::int64_t tokens_per_row) {
  SparseIndices sparse;
  sparse.indices = memory.allocate(name, DType::i32, {lengths.tokens(), top_k});
  if (with_lengths)
    sparse.lengths = memory.allocate(name + "_lengths", DType::i32, {lengths.tokens()});
  const std::uint64_t stream = seed_of(name, seed);
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    for (std::int64_t i = 0; i < lengths.added[static_cast<std::size_t>(b)]; ++i, ++token) {
      const std::uint64_t row_seed = hash_of(stream, static_cast<std::uint64_t>(token));
      std::int32_t* row = sparse.indices.as<std::int32_t>() + token * top_k;
      const std::int64_t bound =
          (lengths.cached[static_cast<std::size_t>(b)] + i + 1) / tokens_per_row;
      if (kind == "chosen") choose(row, top_k, bound, row_seed);
      if (kind == "hostile") scatter(row, top_k, lengths.keys(b) / tokens_per_row, row_seed);
      if (kind == "none") std::fill_n(row, top_k, -1);
      if (!with_lengths) continue;
      sparse.lengths->as<std::int32_t>()[token] =
          static_cast<std::int32_t>(integer_at(row_seed, 1u << 20, top_k + 1));
    }
  }
  return sparse;
}

std::vector<std::int64_t> count_present(const SparseIndices& sparse, const CacheSpec& cache,
                                        const Lengths& lengths, std::int64_t tokens_per_row) {
  std::vector<std::int64_t> counts;
  const std::int64_t top_k = sparse.indices.shape[1];
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    for (std::int64_t i = 0; i < lengths.added[static_cast<std::size_t>(b)]; ++i) {
      const auto token = static_cast<std::int64_t>(counts.size());
      const std::int64_t slots =
          sparse.lengths.has_value() ? sparse.lengths->as<std::int32_t>()[token] : top_k;
      const std::int32_t* row = sparse.indices.as<std::int32_t>() + token * top_k;
      counts.push_back(std::count_if(row, row + slots, [&](std::int32_t position) {
        return position >= 0 && position < lengths.keys(b) / tokens_per_row &&
               cache.is_assigned(b, position);
      }));
    }
  }
  return counts;
}

}  // namespace quire::tools
