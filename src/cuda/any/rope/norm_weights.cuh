// SPDX-License-Identifier: Apache-2.0
// The weights of q's norm and of the key's in shared memory, as fp32 and with their offset: every row of a CTA needs
// them. Vectors of eight stand as two halves apart, so that neighbouring lanes read neighbouring banks.
#pragma once

#include "cuda/any/rope/params.h"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::any::rope {

class NormWeights {
 public:
  static constexpr int kMostColumns = 1024;

  // All threads of the CTA.
  __device__ void fill(const RopeNorm& norm, float offset) {
    for (int c = static_cast<int>(threadIdx.x); c < norm.columns; c += blockDim.x) {
      const float weight = load_one(norm.gamma, norm.dtype, c) + offset;
      reinterpret_cast<float*>(&halves_[c / 4 % 2][c / kVec8])[c % 4] = weight;
    }
  }

  // The same, but 1 where there is no norm, of `columns` columns.
  __device__ void fill_or_ones(const RopeNorm& norm, int columns, float offset) {
    if (norm.gamma != nullptr) return fill(norm, offset);
    for (int i = static_cast<int>(threadIdx.x); i < columns / kVec8; i += blockDim.x) {
      halves_[0][i] = halves_[1][i] = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    }
  }

  // Of eight columns from `column` on.
  __device__ void load(int column, float (&weights)[kVec8]) const {
    Vec8<DType::f32>::decode({halves_[0][column / kVec8], halves_[1][column / kVec8]}, weights);
  }

  // values · factor · weights, of the same columns.
  __device__ void scale(int column, float factor, float (&values)[kVec8]) const {
    float gamma[kVec8];
    load(column, gamma);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) values[i] = values[i] * factor * gamma[i];
  }

 private:
  float4 halves_[2][kMostColumns / kVec8];
};

struct BlockWeights {
  NormWeights query;
  NormWeights key;
};

}  // namespace quire::cuda::any::rope
