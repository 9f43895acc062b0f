// SPDX-License-Identifier: Apache-2.0
// Products of f32 tiles, of which the tensor core reads sign, exponent and ten bits (tf32). For the kernels that
// multiply them; both operands in shared memory.
#pragma once

#include "cuda/common/mma/wgmma.cuh"

namespace quire::cuda {

template <> struct WgmmaShape<DType::f32, 64> {
  template <gmma::Major> using Shared = gmma::MMA_64x64x8_F32TF32TF32_SS_TN<>;
};
template <> struct WgmmaShape<DType::f32, 96> {
  template <gmma::Major> using Shared = gmma::MMA_64x96x8_F32TF32TF32_SS_TN<>;
};
template <> struct WgmmaShape<DType::f32, 192> {
  template <gmma::Major> using Shared = gmma::MMA_64x192x8_F32TF32TF32_SS_TN<>;
};
template <> struct WgmmaShape<DType::f32, 256> {
  template <gmma::Major> using Shared = gmma::MMA_64x256x8_F32TF32TF32_SS_TN<>;
};

}  // namespace quire::cuda
