// SPDX-License-Identifier: Apache-2.0
// FewRows: a few rows of X times packed weights whose numbers are multiplied as soon as they are decoded, with the bits
// of the engine's panels. Every engine may have such a way:
//   static bool takes(const MatmulJob& job);
//   static std::int64_t x_elements(const MatmulJob& job);  // scratch
//   FewRows(const MatmulJob& job, float* x, const float* row_sums, std::int64_t row_sums_stride);
//   void multiply(std::int64_t panel, std::int64_t count, float* sums, std::int64_t sums_stride) const;
#pragma once

#include "cpu/fused_qkv_matmul/job.h"
#include "cpu/simd/tile_bf16.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// VDPBF16PS and BFMMLA take panels that were decoded before.
template <typename Engine> class FewRows {
 public:
  static bool takes(const MatmulJob&) { return false; }
  static std::int64_t x_elements(const MatmulJob&) { return 0; }
  FewRows(const MatmulJob&, float*, const float*, std::int64_t) {}
  void multiply(std::int64_t, std::int64_t, float*, std::int64_t) const {}
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET

#include "cpu/simd/few_rows_vectors.h"

#if defined(__AMX_BF16__)
#include "cpu/simd/few_rows_amx.h"
#elif !defined(__AVX512BF16__) && !defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
namespace quire::cpu::QUIRE_CPU_TARGET {
template <> class FewRows<WideningBf16> : public FewVectorRows<WidenedProduct> {
 public:
  using FewVectorRows::FewVectorRows;
};
}  // namespace quire::cpu::QUIRE_CPU_TARGET
#endif
