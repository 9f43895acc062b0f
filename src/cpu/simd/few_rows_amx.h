// SPDX-License-Identifier: Apache-2.0
// Up to four rows of X times packed 4-bit weights, without tiles: so few rows leave the tile unit
// empty, and numbers that are multiplied at once need not be written anywhere.
//
// Bits are those of the tiles. TDPBF16PS adds the products of even and of odd k in chains of fused
// multiply-adds that start from zero, then both to the sum, and takes subnormals as zero: 32 k at a
// time, vectors do the same.
#pragma once

#include <immintrin.h>

#include "cpu/simd/packed_numbers.h"
#include "cpu/simd/row_width.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Subnormals are zero while it lives, as they are to the tile unit.
class FlushedSubnormals {
 public:
  FlushedSubnormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlush); }
  ~FlushedSubnormals() { _mm_setcsr(saved_); }
  FlushedSubnormals(const FlushedSubnormals&) = delete;
  FlushedSubnormals& operator=(const FlushedSubnormals&) = delete;

 private:
  static constexpr unsigned kFlush = 0x8040;  // results and operands
  unsigned saved_;
};

template <> class FewRows<AmxBf16> {
 public:
  static constexpr int kMostRows = 4;

  // Whether the tiles' product of such a job is made of what this class does.
  static bool takes(const MatmulJob& job) {
    return job.tokens <= kMostRows && job.weight.is_packed() && job.weight.packed.bits == 4 &&
           job.weight.packed.width == kWidth && job.scaling == Scaling::per_group &&
           job.group == job.weight.group && job.group % kStep == 0 && job.x.scale == nullptr;
  }
  static std::int64_t x_elements(const MatmulJob& job) {
    return kMostRows * round_up_to(job.weight.columns, kStep);
  }

  // x: room for x_elements. row_sums [groups][sums_stride] of X for weights with mins, else null.
  FewRows(const MatmulJob& job, float* x, const float* row_sums, std::int64_t row_sums_stride)
      : job_(job),
        stride_(round_up_to(job.weight.columns, kStep)),
        x_(x),
        row_sums_(row_sums),
        row_sums_stride_(row_sums_stride) {
    load_x(reinterpret_cast<const std::uint16_t*>(job.packed_x));
  }

  // sums [tokens, sums_stride] of `count` panels of columns.
  __attribute__((noinline)) void multiply(std::int64_t panel, std::int64_t count, float* sums,
                                          std::int64_t sums_stride) const {
    const FlushedSubnormals flushed;
    const Block block{panel, sums, sums_stride};
    job_.weight.packed.has_zeros ? multiply_panels<ColumnZeros>(block, count)
                                 : multiply_panels<FixedNumbers>(block, count);
  }

 private:
  static constexpr int kWidth = 16;  // columns of a panel
  static constexpr int kStep = 32;   // k of a tile
  static constexpr int kWords = kStep / 8;

  // packed: A tiles of a narrow panel, [depth / 32][rows][32].
  void load_x(const std::uint16_t* packed) {
    const int rows = static_cast<int>(job_.tokens);
    for (std::int64_t k = 0; k < stride_; k += kStep) {
      for (int row = 0; row < rows; ++row, packed += kStep) {
        for (int half = 0; half < kStep; half += 16) {
          const __m512i wide = _mm512_cvtepu16_epi32(
              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(packed + half)));
          _mm512_storeu_si512(x_ + row * stride_ + k + half, _mm512_slli_epi32(wide, 16));
        }
      }
    }
  }

  struct Block {
    std::int64_t panel;
    float* sums;
    std::int64_t sums_stride;

    Block after(int panels) const { return {panel + panels, sums + panels * kWidth, sums_stride}; }
  };

  // VPERMPS looks at the low four bits of an index alone: a shifted word needs no mask.
  struct FixedNumbers {
    FixedNumbers(const PackedScales&, std::int64_t) {}
    static __m512 table(const WeightView& w) {
      if (w.block == nullptr) {
        return _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
      }
      const auto* values = reinterpret_cast<const __m128i*>(w.block->values);
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(values)));
    }
    __m512 number(__m512 code) const { return code; }
  };
  struct ColumnZeros {
    ColumnZeros(const PackedScales& scales, std::int64_t group)
        : zeros(_mm512_cvtepi32_ps(scales.zeros(group, 0, true).raw)) {}
    static __m512 table(const WeightView&) {
      return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    __m512 number(__m512 code) const { return _mm512_sub_ps(code, zeros); }

    __m512 zeros;
  };

  template <typename Zeros> void multiply_panels(Block block, std::int64_t count) const {
    on_width<kMostRows>(power_of_two_rows(static_cast<int>(job_.tokens), kMostRows), [&](auto tag) {
      constexpr int kRows = decltype(tag)::kRows;
      constexpr int kPanels = 4 / kRows;  // enough chains to hide the latency of an addition
      std::int64_t left = count;
      for (; left >= kPanels; left -= kPanels, block = block.after(kPanels)) {
        multiply_block<Zeros, kRows, kPanels>(block);
      }
      for (; left > 0; --left, block = block.after(1)) multiply_block<Zeros, kRows, 1>(block);
    });
  }

  template <typename Zeros, int kRows, int kPanels> void multiply_block(const Block& block) const {
    const float* rows[kRows];
    for (int r = 0; r < kRows; ++r) {  // the last row stands in for one that is missing
      rows[r] = x_ + (r < job_.tokens ? r : job_.tokens - 1) * stride_;
    }
    const std::int64_t panel_bytes = job_.weight.packed.panel_bytes;
    const std::byte* words = job_.weight.data + block.panel * panel_bytes;
    const __m512 table = Zeros::table(job_.weight);
    __m512 sums[kRows][kPanels];
    std::int64_t k = 0;
    for (std::int64_t group = 0; k < job_.weight.columns; ++group) {
      const std::int64_t end = k + job_.group < stride_ ? k + job_.group : stride_;
      __m512 products[kRows][kPanels];
      for (auto& row : products) {
        for (__m512& product : row) product = _mm512_setzero_ps();
      }
      for (; k < end; k += kStep) {
        for (int p = 0; p < kPanels; ++p) {
          const Zeros zeros(PackedScales(job_.weight, block.panel + p), group);
          add_step<Zeros, kRows, kPanels>(words + p * panel_bytes + k * kWidth / 2, rows, k, zeros,
                                          table, p, products);
        }
      }
      scale_group(block.panel, group, products, sums);
    }
    for (int r = 0; r < kRows && r < job_.tokens; ++r) {
      for (int p = 0; p < kPanels; ++p) {
        _mm512_storeu_ps(block.sums + r * block.sums_stride + p * kWidth, sums[r][p]);
      }
    }
  }

  // 32 k of one panel.
  template <typename Zeros, int kRows, int kPanels>
  HWY_INLINE static void add_step(const std::byte* words, const float* const (&rows)[kRows],
                                  std::int64_t k, const Zeros& zeros, __m512 table, int panel,
                                  __m512 (&products)[kRows][kPanels]) {
    __m512 even[kRows];
    __m512 odd[kRows];
    for (int r = 0; r < kRows; ++r) even[r] = odd[r] = _mm512_setzero_ps();
    for (int line = 0; line < kWords; ++line) _mm_prefetch(words + kAhead + 64 * line, _MM_HINT_T0);
    for (int word = 0; word < kWords; ++word) {
      const __m512i codes = _mm512_loadu_si512(words + word * 4 * kWidth);
      const std::int64_t at = k + 8 * word;
      // Nibbles k0 k2 k4 k6 k1 k3 k5 k7, the lowest first.
      for (int pair = 0; pair < 4; ++pair) {
        const __m512 low = zeros.number(_mm512_permutexvar_ps(
            _mm512_srli_epi32(codes, static_cast<unsigned>(4 * pair)), table));
        const __m512 high = zeros.number(_mm512_permutexvar_ps(
            _mm512_srli_epi32(codes, static_cast<unsigned>(16 + 4 * pair)), table));
        for (int r = 0; r < kRows; ++r) {
          even[r] = _mm512_fmadd_ps(_mm512_set1_ps(rows[r][at + 2 * pair]), low, even[r]);
          odd[r] = _mm512_fmadd_ps(_mm512_set1_ps(rows[r][at + 2 * pair + 1]), high, odd[r]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      products[r][panel] = _mm512_add_ps(products[r][panel], _mm512_add_ps(even[r], odd[r]));
    }
  }

  // sums (+)= products · scales of the group, as SumUpdate does it.
  template <int kRows, int kPanels>
  HWY_INLINE void scale_group(std::int64_t panel, std::int64_t group,
                              const __m512 (&products)[kRows][kPanels],
                              __m512 (&sums)[kRows][kPanels]) const {
    for (int p = 0; p < kPanels; ++p) {
      const __m512 scales = scales_of(panel + p, group);
      for (int r = 0; r < kRows; ++r) {
        sums[r][p] = group == 0 ? _mm512_mul_ps(products[r][p], scales)
                                : _mm512_fmadd_ps(products[r][p], scales, sums[r][p]);
      }
      if (row_sums_ == nullptr) continue;
      const __m512 mins = mins_of(panel + p, group);
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t row = r < job_.tokens ? r : job_.tokens - 1;
        const __m512 x = _mm512_set1_ps(row_sums_[group * row_sums_stride_ + row]);
        sums[r][p] = _mm512_fmadd_ps(mins, x, sums[r][p]);
      }
    }
  }

  HWY_INLINE __m512 scales_of(std::int64_t panel, std::int64_t group) const {
    const PackedLayout& packed = job_.weight.packed;
    return factors_of(panel, group, packed.scale_offset, packed.scale_dtype);
  }
  HWY_INLINE __m512 mins_of(std::int64_t panel, std::int64_t group) const {
    const PackedLayout& packed = job_.weight.packed;
    return factors_of(panel, group, packed.min_offset, packed.min_dtype);
  }
  HWY_INLINE __m512 factors_of(std::int64_t panel, std::int64_t group, std::int64_t offset,
                               DType dtype) const {
    const std::int64_t at = (panel * job_.weight.packed.groups + group) * kWidth;
    const std::byte* factors = job_.weight.data + offset;
    const auto* halves = reinterpret_cast<const __m256i*>(factors + 2 * at);
    if (dtype == DType::f16) return _mm512_cvtph_ps(_mm256_loadu_si256(halves));
    if (dtype == DType::f32) return _mm512_loadu_ps(factors + 4 * at);
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(halves));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }

  static constexpr std::int64_t kAhead = 512;  // bytes of a panel

  const MatmulJob& job_;
  std::int64_t stride_;
  float* x_;  // [kMostRows, stride_]
  const float* row_sums_;
  std::int64_t row_sums_stride_;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
