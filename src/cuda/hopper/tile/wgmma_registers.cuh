// SPDX-License-Identifier: Apache-2.0
// Warpgroup products whose first operand comes from registers; the second is a tile as in wgmma.cuh.
#pragma once

#include "cuda/hopper/tile/wgmma.cuh"

namespace quire::cuda::hopper {

// 64 × kN, sums in fp32.
template <DType kDType, int kN>
using WgmmaFromRegisters =
    decltype(cute::SM90::GMMA::rs_op_selector<
             typename CuteElement<kDType>::type, typename CuteElement<kDType>::type, float,
             cute::Shape<cute::Int<kWgmmaRows>, cute::Int<kN>,
                         cute::Int<kStepBytes / sizeof(typename CuteElement<kDType>::type)>>>());

namespace detail {
template <typename Op, int kRegisters, std::size_t... kIndex>
__device__ inline void issue(const std::uint32_t (&a)[4], std::uint64_t b,
                             float (&sums)[kRegisters], cute::SM90::GMMA::ScaleOut scale,
                             std::index_sequence<kIndex...>) {
  Op::fma(a[0], a[1], a[2], a[3], b, sums[kIndex]..., scale);
}
}  // namespace detail

// sums (+)= A · Bᵀ over 32 bytes of K. Thread t holds A's rows as it holds those of the sums, columns
// 2 (t % 4) + e of each half: a[0], a[1] the two rows of the first half, a[2], a[3] of the second.
template <typename Op, int kRegisters>
__device__ inline void multiply_registers(const std::uint32_t (&a)[4], std::uint64_t b,
                                          float (&sums)[kRegisters], bool starts_sum) {
  detail::issue<Op>(a, b, sums,
                    starts_sum ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
                    std::make_index_sequence<kRegisters>{});
}

}  // namespace quire::cuda::hopper
