// SPDX-License-Identifier: Apache-2.0
// Shapes and shared memory of attend_tile.cuh, and the few steps that need nothing else.
#pragma once

#include "cuda/common/rows/row_reader.cuh"

namespace quire::cuda {

template <int kTileRows, int kValueVectors> struct AttendConfig {
  static constexpr int kRows = kTileRows;         // 8 or 32
  static constexpr int kVectors = kValueVectors;  // of 128 value columns each
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kWarpRows = kRows / kWarps;
  static constexpr int kKeys = 64;
  static constexpr int kChunk = 64;          // columns of a product's step
  static constexpr int kValueColumns = 128;  // of a vector: four a lane
  static constexpr int kSumColumns = 32;     // that a score takes in at once
  static constexpr int kSumKeys = 16;        // that an output takes in at once
  // Scores of a thread: kThreadRows × kThreadKeys.
  static constexpr int kThreadKeys = kRows == 8 ? 2 : 4;
  static constexpr int kKeyGroups = kKeys / kThreadKeys;
  static constexpr int kRowGroups = kThreads / kKeyGroups;
  static constexpr int kThreadRows = kRows / kRowGroups;
  static constexpr int kPad = 4;  // rows begin 4 banks apart: 8 lanes of a quarter-warp never meet
};

struct KeyPlace {
  RowPlace key{};
  RowPlace value{};

  __device__ bool exists() const { return key.exists(); }
};

template <typename Config> struct AttendShared {
  struct Products {
    float keys[Config::kKeys][Config::kChunk + Config::kPad];
    float queries[Config::kRows][Config::kChunk + Config::kPad];
  };
  union {
    Products products;
    float values[Config::kKeys][Config::kValueColumns];
  };
  float weights[Config::kRows][Config::kKeys + Config::kPad];  // scores first
  KeyPlace places[Config::kKeys];
};

// What a row knows of the keys so far; every lane of its warp holds the same.
struct RowState {
  float maximum = -INFINITY;
  float sum = 0.0f;
};

// The weight of a key that a row does not see: adds nothing, and can be told from a weight that
// vanished, whose value must count if it is NaN or infinite.
__device__ inline float unseen_weight() {
  return -0.0f;
}
__device__ inline bool is_unseen(float weight) {
  return __float_as_uint(weight) == 0x80000000u;
}

template <int kRows, int kColumns>
__device__ inline void add_parts(float (&sums)[kRows][kColumns],
                                 const float (&parts)[kRows][kColumns]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sums[i][j] += parts[i][j];
  }
}

__device__ inline void store_columns(float* to, const float (&values)[kVec8]) {
  reinterpret_cast<float4*>(to)[0] = {values[0], values[1], values[2], values[3]};
  reinterpret_cast<float4*>(to)[1] = {values[4], values[5], values[6], values[7]};
}

}  // namespace quire::cuda
