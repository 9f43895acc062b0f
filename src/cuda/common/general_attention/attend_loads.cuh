// SPDX-License-Identifier: Apache-2.0
// What attend_tile.cuh multiplies, from its source into shared memory.
#pragma once

#include "cuda/common/general_attention/attend_shared.cuh"

namespace quire::cuda {

// Not inlined, as load_values is not: decoding any format is long, and one copy of it is enough.
template <typename Config, typename Source>
__device__ __noinline__ void load_products(const Source& source, AttendShared<Config>& shared,
                                           int column) {
  constexpr int kRuns = Config::kChunk / kVec8;
#pragma unroll
  for (int i = threadIdx.x; i < Config::kKeys * kRuns; i += Config::kThreads) {
    float values[kVec8];
    source.load_key(shared.places[i / kRuns], column + i % kRuns * kVec8, values);
    store_columns(&shared.products.keys[i / kRuns][i % kRuns * kVec8], values);
  }
  for (int i = threadIdx.x; i < Config::kRows * kRuns; i += Config::kThreads) {
    float values[kVec8];
    source.load_query(i / kRuns, column + i % kRuns * kVec8, values);
    store_columns(&shared.products.queries[i / kRuns][i % kRuns * kVec8], values);
  }
}

// Whether a value is NaN or infinite.
template <typename Config, typename Source>
__device__ __noinline__ bool load_values(const Source& source, AttendShared<Config>& shared,
                                         int first_column) {
  constexpr int kRuns = Config::kValueColumns / kVec8;
  bool is_wild = false;
#pragma unroll
  for (int i = threadIdx.x; i < Config::kKeys * kRuns; i += Config::kThreads) {
    float values[kVec8];
    source.load_value(shared.places[i / kRuns], first_column + i % kRuns * kVec8, values);
#pragma unroll
    for (const float value : values) is_wild = is_wild || !isfinite(value);
    store_columns(&shared.values[i / kRuns][i % kRuns * kVec8], values);
  }
  return is_wild;
}

}  // namespace quire::cuda
