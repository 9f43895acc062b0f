// SPDX-License-Identifier: Apache-2.0
// A few rows of X times packed 4-bit weights where bf16 is widened: numbers go from their codes
// into the products, in f32, and are written nowhere.
//
// Bits are those of WideningBf16: every column is one chain of fused multiply-adds in the order of
// k, for kSummed k or the rest of a group; chains join in order, and groups as in SumUpdate.
#pragma once

#include "cpu/simd/packed_numbers.h"
#include "cpu/simd/row_width.h"
#include "cpu/simd/tile_bf16_widening.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Numbers of 16 codes. With AVX-512 they come from a register: VPERMPS looks at the low four bits of a lane alone, so
// shifted words need no mask.
#if defined(__AVX512F__)
class NibbleTable {
 public:
  static constexpr bool kTakesTables = true;

  static NibbleTable of_codes() {
    return NibbleTable(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  }
  static NibbleTable of_numbers(const WeightView& w) {
    if (w.block == nullptr) {
      return NibbleTable(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7));
    }
    const auto* values = reinterpret_cast<const __m128i*>(w.block->values);
    return NibbleTable(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(values))));
  }
  template <int kShift> F32Vector at(U32Vector words) const {
    return F32Vector{_mm512_permutexvar_ps(hn::ShiftRight<kShift>(words).raw, values_)};
  }

 private:
  explicit NibbleTable(__m512 values) : values_(values) {}
  __m512 values_;
};
#else
class NibbleTable {
 public:
  static constexpr bool kTakesTables = false;

  static NibbleTable of_codes() { return NibbleTable(0.0f); }
  static NibbleTable of_numbers(const WeightView& w) {
    return NibbleTable(has_middle_zero(w) ? 8.0f : 0.0f);
  }
  template <int kShift> F32Vector at(U32Vector words) const {
    return hn::Sub(f32_of_ints(bits_at<kShift>(words, 15u)), hn::Set(F32Tag(), zero_));
  }

 private:
  explicit NibbleTable(float zero) : zero_(zero) {}
  float zero_;
};
#endif

class NibbleRows {
  using Engine = WideningBf16;

 public:
  static constexpr int kMostRows = Engine::kRows;

  // Whether the engine's product of such a job is made of what this class does.
  static bool takes(const MatmulJob& job) {
    const WeightView& w = job.weight;
    const bool has_table = w.block != nullptr && w.block->has_table;
    return job.tokens <= kMostRows && w.is_packed() && w.packed.bits == 4 &&
           w.packed.width == kWidth && (NibbleTable::kTakesTables || !has_table) &&
           job.scaling == Scaling::per_group && job.group == w.group && job.group % kStep == 0 &&
           job.depth_block % job.group == 0 && job.x.scale == nullptr;
  }
  static std::int64_t x_elements(const MatmulJob& job) {
    return kMostRows * round_up_to(job.weight.columns, kStep);
  }

  // x: room for x_elements. row_sums [groups][sums_stride] of X for weights with mins, else null.
  NibbleRows(const MatmulJob& job, float* x, const float* row_sums, std::int64_t row_sums_stride)
      : job_(job),
        rows_(Engine::narrow_rows(static_cast<int>(job.tokens))),
        x_(x),
        row_sums_(row_sums),
        row_sums_stride_(row_sums_stride) {}

  // packed: the only panel of X, [depth / 2][rows_][2], which stays in this order.
  void load_x(const std::uint16_t* packed) {
    const std::int64_t depth = job_.weight.columns;
    const std::int64_t count = rows_ * round_up_to(depth, Engine::kDepth);
    const std::int64_t all = rows_ * round_up_to(depth, kStep);
    widen_row(DType::bf16, reinterpret_cast<const std::byte*>(packed), count, x_);
    for (std::int64_t i = count; i < all; ++i) x_[i] = 0.0f;
  }

  // sums [rows, sums_stride] of `count` panels of columns.
  void multiply(std::int64_t panel, std::int64_t count, float* sums,
                std::int64_t sums_stride) const {
    const Block block{panel, sums, sums_stride};
    job_.weight.packed.has_zeros ? multiply_panels<ColumnZeros>(block, count)
                                 : multiply_panels<FixedZero>(block, count);
  }

 private:
  static constexpr int kWidth = Engine::kCols;  // columns of a panel, two vectors
  static constexpr int kStep = 8;               // k of a word
  static constexpr std::int64_t kAhead = 512;   // bytes of a panel
  // Accumulators: the registers that codes, numbers and zeros leave.
  static constexpr int kChains = HWY_TARGET == HWY_AVX2 || kFmaRows == 4 ? 8 : 16;

  struct Block {
    std::int64_t panel;
    float* sums;
    std::int64_t sums_stride;

    Block after(int panels) const { return {panel + panels, sums + panels * kWidth, sums_stride}; }
  };

  // One vector of columns of one group.
  struct FixedZero {
    void load(const PackedScales&, std::int64_t, std::int64_t) {}
    static NibbleTable table(const WeightView& w) { return NibbleTable::of_numbers(w); }
    F32Vector number(F32Vector code) const { return code; }
  };
  struct ColumnZeros {
    void load(const PackedScales& scales, std::int64_t group, std::int64_t column) {
      zeros = f32_of_ints(scales.zeros(group, column, true));
    }
    static NibbleTable table(const WeightView&) { return NibbleTable::of_codes(); }
    F32Vector number(F32Vector code) const { return hn::Sub(code, zeros); }

    F32Vector zeros;
  };

  template <typename Zeros> void multiply_panels(Block block, std::int64_t count) const {
    on_width<kMostRows>(rows_, [&](auto tag) {
      constexpr int kRows = decltype(tag)::kRows;
      constexpr int kPanels = kRows == 1 ? 4 : kChains / (2 * kRows);
      std::int64_t left = count;
      for (; left >= kPanels; left -= kPanels, block = block.after(kPanels)) {
        multiply_block<Zeros, kRows, kPanels>(block);
      }
      for (; left > 0; --left, block = block.after(1)) multiply_block<Zeros, kRows, 1>(block);
    });
  }

  template <int kRows, int kPanels> using Sums = F32Vector[kRows][2 * kPanels];

  template <typename Zeros, int kRows, int kPanels> void multiply_block(const Block& block) const {
    const std::int64_t depth = round_up_to(job_.weight.columns, kStep);
    std::int64_t k = 0;
    for (std::int64_t group = 0; k < depth; ++group) {
      const std::int64_t end = k + job_.group < depth ? k + job_.group : depth;
      Sums<kRows, kPanels> products;
      for (bool is_first = true; k < end; is_first = false) {
        const std::int64_t stop = k + Engine::kSummed < end ? k + Engine::kSummed : end;
        sum_part<Zeros, kRows, kPanels>(block.panel, group, k, stop, is_first, products);
        k = stop;
      }
      scale_group<kRows, kPanels>(block, group, products);
    }
  }

  // Eight k of a block.
  template <typename Zeros, int kPanels> struct Step {
    static constexpr int kVectors = 2 * kPanels;

    // chains += the row of X at k · the numbers in these bits. x [4][kRows][2].
    template <int kShift, int kRows>
    HWY_INLINE void add(int k, const float* x, Sums<kRows, kPanels>& chains) const {
      F32Vector numbers[kVectors];
#pragma GCC unroll 8  // as everywhere here: accumulators stay in registers
      for (int v = 0; v < kVectors; ++v) numbers[v] = zeros[v].number(table.at<kShift>(words[v]));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F32Vector row = hn::Set(F32Tag(), x[k / 2 * 2 * kRows + 2 * r + k % 2]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) chains[r][v] = hn::MulAdd(row, numbers[v], chains[r][v]);
      }
    }

    explicit Step(const WeightView& w) : table(Zeros::table(w)) {}

    NibbleTable table;
    U32Vector words[kVectors];
    Zeros zeros[kVectors];
  };

  // products = or += the products of k in [first, last), a chain for every row and column.
  template <typename Zeros, int kRows, int kPanels>
  void sum_part(std::int64_t panel, std::int64_t group, std::int64_t first, std::int64_t last,
                bool is_first, Sums<kRows, kPanels>& products) const {
    constexpr int kVectors = 2 * kPanels;
    const std::int64_t panel_bytes = job_.weight.packed.panel_bytes;
    const std::byte* words = job_.weight.data + panel * panel_bytes + first * kWidth / 2;
    const float* x = x_ + first * kRows;
    Step<Zeros, kPanels> step(job_.weight);
    for (int v = 0; v < kVectors; ++v) {
      step.zeros[v].load(PackedScales(job_.weight, panel + v / 2), group, v % 2 * kF32Lanes);
    }
    Sums<kRows, kPanels> chains;
    for (auto& row : chains) {
      for (F32Vector& chain : row) chain = hn::Zero(F32Tag());
    }
    for (std::int64_t k = first; k < last; k += kStep) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const std::byte* source = words + v / 2 * panel_bytes + v % 2 * 4 * kF32Lanes;
        __builtin_prefetch(source + kAhead);
        step.words[v] = load_words(source);
      }
      step.template add<0>(0, x, chains);
      step.template add<16>(1, x, chains);
      step.template add<4>(2, x, chains);
      step.template add<20>(3, x, chains);
      step.template add<8>(4, x, chains);
      step.template add<24>(5, x, chains);
      step.template add<12>(6, x, chains);
      step.template add<28>(7, x, chains);
      words += kStep * kWidth / 2;
      x += kStep * kRows;
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        products[r][v] = is_first ? chains[r][v] : hn::Add(products[r][v], chains[r][v]);
      }
    }
  }

  // sums (+)= products · scales of the group, as SumUpdate does it.
  template <int kRows, int kPanels>
  void scale_group(const Block& block, std::int64_t group,
                   const Sums<kRows, kPanels>& products) const {
    const F32Tag f32;
    alignas(64) float scales[kWidth];
    alignas(64) float mins[kWidth];
    for (int v = 0; v < 2 * kPanels; ++v) {
      const int column = v % 2 * kF32Lanes;
      if (column == 0) {
        const PackedScales packed(job_.weight, block.panel + v / 2);
        packed.load(group, 1, scales, kWidth);
        if (row_sums_ != nullptr) packed.load_mins(group, 1, mins, kWidth);
      }
      const F32Vector scale = hn::LoadU(f32, scales + column);
      for (int r = 0; r < kRows; ++r) {
        float* sums = block.sums + r * block.sums_stride + v * kF32Lanes;
        F32Vector sum = group == 0 ? hn::Mul(products[r][v], scale)
                                   : hn::MulAdd(products[r][v], scale, hn::LoadU(f32, sums));
        if (row_sums_ != nullptr) {
          const float x = row_sums_[group * row_sums_stride_ + r];
          sum = hn::MulAdd(hn::LoadU(f32, mins + column), hn::Set(f32, x), sum);
        }
        hn::StoreU(sum, f32, sums);
      }
    }
  }

  const MatmulJob& job_;
  int rows_;
  float* x_;  // [depth / 2][rows_][2]
  const float* row_sums_;
  std::int64_t row_sums_stride_;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
