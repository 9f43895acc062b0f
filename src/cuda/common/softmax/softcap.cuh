// SPDX-License-Identifier: Apache-2.0
// Scores that are capped, in powers of two.
#pragma once

#include "cuda/common/softmax/exponents.cuh"

namespace quire::cuda {

// softcap · tanh(scale · product / softcap) for the products of a row. tanh(x) is 1 - 2 / (1 + e^2x), to fp32's last bits
// beside 1: the instruction's own is good to 11.
class Softcap {
 public:
  // `twice`: 2 · scale / softcap, the scale in powers of two.
  __device__ Softcap(float softcap, float twice) : twice_(twice), cap_(softcap * kLog2e) {}

  __device__ float operator()(float product) const {
    return fmaf(-2.0F * cap_, reciprocal(1.0F + exp2_approx(twice_ * product)), cap_);
  }

 private:
  float twice_;
  float cap_;
};

}  // namespace quire::cuda
