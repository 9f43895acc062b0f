// SPDX-License-Identifier: Apache-2.0
// Instructions of CuTe's largest header, for the kernels that need them.
#pragma once

#include <cute/arch/mma_sm90_gmma.hpp>
#include <cute/arch/mma_sm90_gmma_ext.hpp>

#include "cuda/common/mma/wgmma.cuh"

namespace quire::cuda {

template <> struct WgmmaShape<DType::bf16, 80> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x80x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x80x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 112> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x112x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB>
  using Registers = gmma::MMA_64x112x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 160> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x160x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB>
  using Registers = gmma::MMA_64x160x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 80> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x80x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x80x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 112> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x112x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x112x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 160> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x160x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x160x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 80> {
  template <gmma::Major> using Shared = gmma::MMA_64x80x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x80x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 112> {
  template <gmma::Major> using Shared = gmma::MMA_64x112x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x112x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 160> {
  template <gmma::Major> using Shared = gmma::MMA_64x160x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x160x32_F32E4M3E4M3_RS_TN<>;
};

}  // namespace quire::cuda
