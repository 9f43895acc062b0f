// SPDX-License-Identifier: Apache-2.0
// What attend_tile.cuh multiplies, from its source into shared memory.
#pragma once

#include "cuda/common/general_attention/attend_shared.cuh"

namespace quire::cuda {

// Not inlined, as load_values is not: decoding any format is long, and one copy of it is enough.
template <typename Config, typename Source>
__device__ __noinline__ void load_products(const Source& source, AttendShared<Config>& shared,
                                           int column) {
  constexpr int kRuns = Config::kChunk / kEight;
#pragma unroll
  for (int i = threadIdx.x; i < Config::kKeys * kRuns; i += Config::kThreads) {
    float values[kEight];
    source.load_key(shared.places[i / kRuns], column + i % kRuns * kEight, values);
    store_columns(&shared.products.keys[i / kRuns][i % kRuns * kEight], values);
  }
  for (int i = threadIdx.x; i < Config::kRows * kRuns; i += Config::kThreads) {
    float values[kEight];
    source.load_query(i / kRuns, column + i % kRuns * kEight, values);
    store_columns(&shared.products.queries[i / kRuns][i % kRuns * kEight], values);
  }
}

// Whether a value is NaN or infinite.
template <typename Config, typename Source>
__device__ __noinline__ bool load_values(const Source& source, AttendShared<Config>& shared,
                                         int first_column) {
  constexpr int kRuns = Config::kValueColumns / kEight;
  bool is_wild = false;
#pragma unroll
  for (int i = threadIdx.x; i < Config::kKeys * kRuns; i += Config::kThreads) {
    float values[kEight];
    source.load_value(shared.places[i / kRuns], first_column + i % kRuns * kEight, values);
#pragma unroll
    for (const float value : values) is_wild = is_wild || !isfinite(value);
    store_columns(&shared.values[i / kRuns][i % kRuns * kEight], values);
  }
  return is_wild;
}

}  // namespace quire::cuda
