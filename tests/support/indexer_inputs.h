// SPDX-License-Identifier: Apache-2.0
// Inputs of mla_indexer that own their memory, for tests. The layer used is 1; layer 0 stays
// poisoned.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/ops/mla_indexer.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::test {

// A K-only cache of one head in fp8, one f32 scale per token.
CacheOptions index_options(std::vector<std::uint32_t> cached, std::vector<std::uint32_t> fresh,
                           std::int32_t head_dim = 4);

struct IndexerInputs {
  IndexerInputs(const CacheOptions& options, std::int64_t heads, std::int64_t top_k);

  MlaIndexerArgs args() const;
  std::vector<std::int32_t> row(std::int64_t token) const;  // of out

  TestCache cache;
  HostTensor q;        // [tokens, heads, head_dim]
  HostTensor q_scale;  // [tokens, heads]
  HostTensor out;      // [tokens, top_k]
};

// One query head [1, 0, 0, …] with scale 1, the others zero: a key's score is its first column times
// its scale.
struct PickInputs : IndexerInputs {
  PickInputs(const CacheOptions& options, std::int64_t top_k, std::int64_t heads = 1);

  void set_score(std::int64_t sequence, std::int64_t key, double number, double scale = 1.0);
  void set_scores(const std::vector<double>& numbers);  // of sequence 0
  std::vector<double> run() const;                      // the op; returns out
};

// Four heads of 16 columns, everything random.
struct RandomInputs : IndexerInputs {
  RandomInputs(const CacheOptions& options, std::int64_t top_k);
};

}  // namespace quire::test
