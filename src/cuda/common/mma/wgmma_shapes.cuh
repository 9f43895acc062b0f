// SPDX-License-Identifier: Apache-2.0
// Warpgroup instructions by name: 64 rows of A, K-major in shared memory or in registers, times kN columns of B, sums in
// fp32. CuTe's own choice among all shapes would bring 60 thousand lines more (sparse and odd ones), and three
// quarters of a kernel's compile time were headers. A kN that is missing here may be in wgmma_odd_shapes.cuh.
#pragma once

#include <cute/arch/mma_sm90_gmma.hpp>

#include "quire/dtype.h"

namespace quire::cuda {

namespace gmma = cute::SM90::GMMA;

// kB: Major::K where rows of B lie along K, Major::MN where B is a transposed tile, of 16-bit numbers only.
template <DType kDType, int kN> struct WgmmaShape;
template <> struct WgmmaShape<DType::bf16, 8> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x8x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x8x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 16> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x16x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x16x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 32> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x32x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x32x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 64> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x64x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x64x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 96> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x96x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x96x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 128> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x128x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB>
  using Registers = gmma::MMA_64x128x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 192> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x192x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB>
  using Registers = gmma::MMA_64x192x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::bf16, 256> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x256x16_F32BF16BF16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB>
  using Registers = gmma::MMA_64x256x16_F32BF16BF16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 8> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x8x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x8x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 16> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x16x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x16x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 32> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x32x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x32x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 64> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x64x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x64x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 96> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x96x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x96x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 128> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x128x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x128x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 192> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x192x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x192x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::f16, 256> {
  template <gmma::Major kB> using Shared = gmma::MMA_64x256x16_F32F16F16_SS<gmma::Major::K, kB>;
  template <gmma::Major kB> using Registers = gmma::MMA_64x256x16_F32F16F16_RS<gmma::Major::K, kB>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 8> {
  template <gmma::Major> using Shared = gmma::MMA_64x8x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x8x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 16> {
  template <gmma::Major> using Shared = gmma::MMA_64x16x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x16x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 32> {
  template <gmma::Major> using Shared = gmma::MMA_64x32x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x32x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 64> {
  template <gmma::Major> using Shared = gmma::MMA_64x64x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x64x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 96> {
  template <gmma::Major> using Shared = gmma::MMA_64x96x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x96x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 128> {
  template <gmma::Major> using Shared = gmma::MMA_64x128x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x128x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 192> {
  template <gmma::Major> using Shared = gmma::MMA_64x192x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x192x32_F32E4M3E4M3_RS_TN<>;
};
template <> struct WgmmaShape<DType::fp8_e4m3, 256> {
  template <gmma::Major> using Shared = gmma::MMA_64x256x32_F32E4M3E4M3_SS_TN<>;
  template <gmma::Major> using Registers = gmma::MMA_64x256x32_F32E4M3E4M3_RS_TN<>;
};

// Both operands in shared memory.
template <DType kDType, int kN>
using Wgmma = typename WgmmaShape<kDType, kN>::template Shared<gmma::Major::K>;
// The same, B a transposed tile.
template <DType kDType, int kN>
using TransposedWgmma = typename WgmmaShape<kDType, kN>::template Shared<gmma::Major::MN>;

// A in registers, B's rows are 128 bytes of K.
template <DType kDType, int kN>
using RowWgmma = typename WgmmaShape<kDType, kN>::template Registers<gmma::Major::K>;
// A in registers, B a transposed tile.
template <DType kDType, int kN>
using RegisterWgmma = typename WgmmaShape<kDType, kN>::template Registers<gmma::Major::MN>;

}  // namespace quire::cuda
