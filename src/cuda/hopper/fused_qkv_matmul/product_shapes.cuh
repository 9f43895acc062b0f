// SPDX-License-Identifier: Apache-2.0
// The instructions of fused_qkv_matmul's products by name. CuTe's own choice among all shapes would bring
// 60 thousand lines more (sparse and odd ones), and three quarters of a kernel's compile time were
// headers. A number of columns that is missing here may be in odd_product_shapes.cuh.
#pragma once

#include "cuda/hopper/tile/wgmma_steps.cuh"
#include "quire/dtype.h"

namespace quire::cuda::hopper {

template <DType kDType, int kN> struct WgmmaShape;
template <> struct WgmmaShape<DType::bf16, 64> {
  using type = gmma::MMA_64x64x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::bf16, 96> {
  using type = gmma::MMA_64x96x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::bf16, 192> {
  using type = gmma::MMA_64x192x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::bf16, 256> {
  using type = gmma::MMA_64x256x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::f16, 64> {
  using type = gmma::MMA_64x64x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::f16, 96> {
  using type = gmma::MMA_64x96x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::f16, 192> {
  using type = gmma::MMA_64x192x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::f16, 256> {
  using type = gmma::MMA_64x256x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 32> {
  using type = gmma::MMA_64x32x32_F32E4M3E4M3_SS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 64> {
  using type = gmma::MMA_64x64x32_F32E4M3E4M3_SS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 96> {
  using type = gmma::MMA_64x96x32_F32E4M3E4M3_SS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 128> {
  using type = gmma::MMA_64x128x32_F32E4M3E4M3_SS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 192> {
  using type = gmma::MMA_64x192x32_F32E4M3E4M3_SS_TN<>;
};

// 64 × kN, both operands in shared memory, sums in fp32.
template <DType kDType, int kN> using Wgmma = typename WgmmaShape<kDType, kN>::type;

}  // namespace quire::cuda::hopper
