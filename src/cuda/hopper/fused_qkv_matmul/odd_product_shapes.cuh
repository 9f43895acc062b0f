// SPDX-License-Identifier: Apache-2.0
// Instructions of CuTe's largest header, for the kernels that need them.
#pragma once

#include <cute/arch/mma_sm90_gmma_ext.hpp>
#include "cuda/hopper/fused_qkv_matmul/product_shapes.cuh"

namespace quire::cuda::hopper {

template <> struct WgmmaShape<DType::bf16, 160> {
  using type = gmma::MMA_64x160x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::f16, 160> {
  using type = gmma::MMA_64x160x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 80> {
  using type = gmma::MMA_64x80x32_F32E4M3E4M3_SS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 160> {
  using type = gmma::MMA_64x160x32_F32E4M3E4M3_SS_TN<>;
};

}  // namespace quire::cuda::hopper
