// SPDX-License-Identifier: Apache-2.0
// What the target multiplies int8 with: TDPBSSD, VPDPBUSD, VPMADDUBSW, SMMLA, SMULL, or the 16-bit
// product of the portable vectors.
#include <hwy/highway.h>
#include "cpu/runtime/int8_probe.h"
#include "cpu/simd/tile_bf16.h"

#if defined(__AMX_INT8__)
#include "cpu/simd/tile_int8_amx.h"
#endif

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

#if defined(__AMX_INT8__)

double spin(std::int64_t rounds) {
  const AmxSession session;  // its tiles are zero
  for (std::int64_t i = 0; i < rounds; ++i) {
    tile_multiply_int8<0, 4, 6>();
    tile_multiply_int8<1, 4, 7>();
    tile_multiply_int8<2, 5, 6>();
    tile_multiply_int8<3, 5, 7>();
  }
  return 4.0 * 2.0 * 16 * 16 * 64 * static_cast<double>(rounds);
}

#else

// Independent sums hide the latency of the product; their start values differ so that the compiler
// keeps them all. Step::add adds Step::kProducts products to a sum.
template <typename Step> double spin_chains(std::int64_t rounds) {
  constexpr int kChains = 12;
  Step step;
  typename Step::Sum sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = step.start(i);
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (auto& sum : sums) sum = step.add(sum);
  }
  for (auto& sum : sums) Step::keep(sum);
  return 2.0 * kChains * Step::kProducts * static_cast<double>(rounds);
}

#if defined(__AVX512VNNI__)
struct Step {
  using Sum = __m512i;
  static constexpr int kProducts = 64;
  __m512i ones = _mm512_set1_epi8(1);

  Step() { __asm__ volatile("" : "+v"(ones)); }
  static Sum start(int i) { return _mm512_set1_epi32(i); }
  // In assembly: of the intrinsic GCC copies each sum, which takes as long as the product.
  Sum add(Sum sum) const {
    __asm__("vpdpbusd %1, %1, %0" : "+v"(sum) : "v"(ones));
    return sum;
  }
  static void keep(Sum sum) { __asm__ volatile("" : : "v"(sum)); }
};
#elif defined(__AVX2__)
struct Step {
  using Sum = __m256i;
  static constexpr int kProducts = 32;
  __m256i ones = _mm256_set1_epi8(1);
  __m256i wide_ones = _mm256_set1_epi16(1);

  Step() { __asm__ volatile("" : "+x"(ones), "+x"(wide_ones)); }
  static Sum start(int i) { return _mm256_set1_epi32(i); }
  Sum add(Sum sum) const {
    __m256i left = ones;
    __asm__ volatile("" : "+x"(left));  // or the product would leave the loop
    const __m256i pairs = _mm256_maddubs_epi16(left, ones);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, wide_ones));
  }
  static void keep(Sum sum) { __asm__ volatile("" : : "x"(sum)); }
};
#elif defined(__ARM_FEATURE_MATMUL_INT8)
struct Step {
  using Sum = int32x4_t;
  static constexpr int kProducts = 32;
  int8x16_t ones = vdupq_n_s8(1);

  Step() { __asm__ volatile("" : "+w"(ones)); }
  static Sum start(int i) { return vdupq_n_s32(i); }
  Sum add(Sum sum) const { return vmmlaq_s32(sum, ones, ones); }
  static void keep(Sum sum) { __asm__ volatile("" : : "w"(sum)); }
};
#else
namespace hn = hwy::HWY_NAMESPACE;

// Products of int8 numbers widened to int16, the best that 128-bit baselines have in common.
struct Step {
  using Words = hn::ScalableTag<std::int16_t>;
  using Long = hn::Vec<hn::ScalableTag<std::int32_t>>;
  struct Sum {
    Long even, odd;
  };
  static constexpr int kProducts = static_cast<int>(hn::MaxLanes(Words()));
  volatile std::int16_t one = 1;
  hn::Vec<Words> ones = hn::Set(Words(), one);

  static Sum start(int i) {
    const auto first = hn::Set(hn::ScalableTag<std::int32_t>(), i);
    return {first, first};
  }
  Sum add(Sum sum) const {
    hn::Vec<Words> left = ones;
#if HWY_ARCH_X86
    __asm__ volatile("" : "+x"(left.raw));  // or the product would leave the loop
#endif
    sum.even = hn::ReorderWidenMulAccumulate(hn::ScalableTag<std::int32_t>(), left, ones, sum.even,
                                             sum.odd);
    return sum;
  }
  static void keep(const Sum& sum) {
    volatile std::int32_t sink = hn::GetLane(hn::Add(sum.even, sum.odd));
    static_cast<void>(sink);
  }
};
#endif

double spin(std::int64_t rounds) {
  return spin_chains<Step>(rounds);
}

#endif

}  // namespace
}  // namespace QUIRE_CPU_TARGET

Int8Spin int8_spin(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::spin;
}

}  // namespace quire::cpu
