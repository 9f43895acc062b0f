// SPDX-License-Identifier: Apache-2.0
// The fp8 codes of numbers that share a scale. Nearly every granule of 16-bit numbers takes the short
// division; f32, scales that are not those of the granule's amax, and magnitudes near the ends of f32 take the long
// one.
#pragma once

#include "cuda/common/rows/quotient.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda {

// What a lane stores for eight numbers of a granule.
struct GranuleCodes {
  uint2 codes;
  float scale;  // the granule's
};

template <DType kX, DType kOut> class GranuleCoder {
 public:
  using X = Vec8<kX>;
  static constexpr float kMaxFinite = kOut == DType::fp8_e4m3 ? 448.0f : 57344.0f;

  __device__ static bool is_short(float amax) {
    return bits(kX) == 16 && GranuleQuotient::takes(amax);
  }

  // scale = amax / max_finite, to nearest.
  __device__ static GranuleCodes encode(const typename X::Raw& raw, float amax) {
    if (is_short(amax)) {
      const float scale = short_scale(amax);
      return encode_short(raw, scale, fmaf(-scale, kMaxFinite, amax));
    }
    return bits(kX) == 16 ? encode_rare(raw, amax)
                          : encode_long(raw, amax, __fdiv_rn(amax, kMaxFinite));
  }
  // Any other scale.
  __device__ static GranuleCodes encode_long(const typename X::Raw& raw, float amax, float scale) {
    float values[kVec8];
    X::decode(raw, values);
    Quotient(scale, amax).divide(values);
    return {encode_fp8<kFormat>(values), scale};
  }

  // For amax that is_short() takes: its scale, and the codes with it (residue = amax - max_finite · scale) or with
  // a power of two not far from it (residue 0).
  __device__ static float short_scale(float amax) {
    return GranuleQuotient::scale_of(amax, kMaxFinite, kInverse);
  }
  __device__ static GranuleCodes encode_short(const typename X::Raw& raw, float scale,
                                              float residue) {
    float values[kVec8];
    X::decode(raw, values);
    GranuleQuotient(scale, residue, kInverse).divide(values);
    return {encode_fp8<kFormat>(values), scale};
  }

 private:
  static constexpr float kInverse = 1.0f / kMaxFinite;
  static constexpr auto kFormat = kOut == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2;

  // A function of its own, so that what every granule needs lies together.
  __device__ __noinline__ static GranuleCodes encode_rare(typename X::Raw raw, float amax) {
    return encode_long(raw, amax, __fdiv_rn(amax, kMaxFinite));
  }
};

// The largest magnitude of eight numbers, NaN apart; 16-bit ones are compared two at a time and travel between
// lanes as a pair.

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
  __device__ static float magnitude(Value value) {
    return fmaxf(0.0f, fmaxf(__low2float(value), __high2float(value)));
  }
};

template <> struct Largest<DType::bf16> : LargestPair<__nv_bfloat162> {};
template <> struct Largest<DType::f16> : LargestPair<__half2> {};

template <> struct Largest<DType::f32> {
  using Value = float;
  __device__ static Value of(const Vec8<DType::f32>::Raw& raw) {
    float values[kVec8];
    Vec8<DType::f32>::decode(raw, values);
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
