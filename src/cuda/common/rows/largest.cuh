// SPDX-License-Identifier: Apache-2.0
// The largest magnitude of eight numbers, NaN apart; 16-bit ones are compared two at a time and travel between
// lanes as a pair.
#pragma once

#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda {

template <DType kType> struct Largest;

template <typename Pair> struct LargestPair {
  using Value = Pair;
  __device__ static Value of(const uint4& raw) {
    const Value* pairs = reinterpret_cast<const Value*>(&raw);
    return __hmax2(__hmax2(__habs2(pairs[0]), __habs2(pairs[1])),
                   __hmax2(__habs2(pairs[2]), __habs2(pairs[3])));
  }
  __device__ static Value merge(Value a, Value b) { return __hmax2(a, b); }
  // That of the lane whose number differs in the bits of `mask`.
  __device__ static Value exchange(Value value, unsigned mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
};

template <> struct Largest<DType::bf16> : LargestPair<__nv_bfloat162> {
  __device__ static float magnitude(Value value) {
    return fmaxf(0.0f, fmaxf(__low2float(value), __high2float(value)));
  }
};

template <> struct Largest<DType::f16> : LargestPair<__half2> {
  __device__ static float magnitude(Value value) {
    return fmaxf(0.0f, fmaxf(__low2float(value), __high2float(value)));
  }
};

template <> struct Largest<DType::f32> {
  using Value = float;
  __device__ static Value of(const Eight<DType::f32>::Raw& raw) {
    float values[kVec8];
    Eight<DType::f32>::decode(raw, values);
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kVec8; ++i) amax = fmaxf(amax, fabsf(values[i]));
    return amax;
  }
  __device__ static Value merge(Value a, Value b) {
    return fmaxf(a, b);
  }
  __device__ static Value exchange(Value value, unsigned mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
  __device__ static float magnitude(Value value) {
    return value;
  }
};

}  // namespace quire::cuda
