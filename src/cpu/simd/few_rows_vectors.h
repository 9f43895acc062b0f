// SPDX-License-Identifier: Apache-2.0
// A few rows of X times packed weights of 4 or 8 bits by vectors of f32: numbers go from their codes into the products
// and are written nowhere.
//
// Bits are those of the engine's panels: every column is one chain of fused multiply-adds in the order of k, for kSummed
// k or the rest of a group; chains join in order, and groups as in SumUpdate.
#pragma once

#include <utility>

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
    if (has_table(w)) {
      const auto* values = reinterpret_cast<const __m128i*>(w.block->values);
      return NibbleTable(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(values))));
    }
    const __m512 zero = _mm512_set1_ps(has_middle_zero(w) ? 8.0f : 0.0f);
    return NibbleTable(_mm512_sub_ps(of_codes().values_, zero));
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

// Eight k of one vector of columns, and what of the weight is the same for all of them. Where a k stands in the words:
// cpu/fused_qkv_matmul/packed_layout.h.
template <typename Zeros> struct NibbleColumns {
  static constexpr int kBits = 4;
  static constexpr int kShifts[8] = {0, 16, 4, 20, 8, 24, 12, 28};
  using Shared = NibbleTable;

  static Shared shared(const WeightView& w) { return Zeros::table(w); }
  void start(const PackedScales& scales, std::int64_t group, std::int64_t column) {
    zeros.load(scales, group, column);
  }
  void load(const std::byte* source, std::int64_t) { words = load_words(source); }
  template <int kOne> F32Vector number(const Shared& table) const {
    return zeros.number(table.at<kShifts[kOne]>(words));
  }

  U32Vector words;
  Zeros zeros;
};

// Zero points that the table has taken off, or one for every column and group.
struct FixedZero {
  static NibbleTable table(const WeightView& w) { return NibbleTable::of_numbers(w); }
  void load(const PackedScales&, std::int64_t, std::int64_t) {}
  F32Vector number(F32Vector code) const { return code; }
};
struct ColumnZeros {
  static NibbleTable table(const WeightView&) { return NibbleTable::of_codes(); }
  void load(const PackedScales& scales, std::int64_t group, std::int64_t column) {
    zeros = f32_of_ints(scales.zeros(group, column, true));
  }
  F32Vector number(F32Vector code) const { return hn::Sub(code, zeros); }

  F32Vector zeros;
};

template <typename Decode> struct ByteColumns {
  static constexpr int kBits = 8;
  static constexpr int kShifts[8] = {0, 16, 0, 16, 8, 24, 8, 24};
  struct Shared {};

  static Shared shared(const WeightView&) { return {}; }
  void start(const PackedScales&, std::int64_t, std::int64_t) {}
  void load(const std::byte* source, std::int64_t width) {
    words[0] = load_words(source);
    words[1] = load_words(source + 4 * width);
  }
  template <int kOne> F32Vector number(const Shared&) const {
    return Decode::run(hn::ShiftRight<kShifts[kOne]>(words[kOne / 2 % 2]));
  }

  U32Vector words[2];
};

// Numbers times their scales, plus their mins, as decode_packed_f32 makes them: a min of 0 changes no bit of a sum.
template <typename Codes> struct ValueColumns : Codes {
  void start(const PackedScales& scales, std::int64_t group, std::int64_t column) {
    Codes::start(scales, group, column);
    scale = scales.scale(group, column);
    min = scales.min(group, column);
  }
  template <int kOne> F32Vector number(const typename Codes::Shared& shared) const {
    return hn::MulAdd(Codes::template number<kOne>(shared), scale, min);
  }

  F32Vector scale, min;
};

inline bool is_fp8(const WeightView& w) {
  return w.codes == Codes::fp8_e4m3 || w.codes == Codes::fp8_e5m2;
}

// What the engines' jobs differ in. X is the only panel of the engine: [depth / kDepth][rows][kDepth].
struct WidenedProduct {
  using Engine = WideningBf16;
  template <typename Codes> using Columns = Codes;

  static bool takes(const MatmulJob& job) {
    if (is_fp8(job.weight) && kPanelsDecodePairs) return false;
    if (job.scaling == Scaling::at_end) return true;
    return job.group == job.weight.group && job.depth_block % job.group == 0 &&
           job.x.scale == nullptr;
  }
  static std::int64_t x_elements(std::int64_t count) { return count; }
  static const float* load_x(const std::byte* packed, std::int64_t count, float* x) {
    widen_row(DType::bf16, packed, count, x);
    return x;
  }

 private:
  // With AVX-512 panels decode two fp8 codes at once, which takes less time than DecodeFp8 here.
  static constexpr bool kPanelsDecodePairs = NibbleTable::kTakesTables;
};
struct F32Product {
  using Engine = F32Engine;
  template <typename Codes> using Columns = ValueColumns<Codes>;

  static bool takes(const MatmulJob& job) { return !is_fp8(job.weight); }
  static std::int64_t x_elements(std::int64_t) { return 0; }
  static const float* load_x(const std::byte* packed, std::int64_t, float*) {
    return reinterpret_cast<const float*>(packed);
  }
};

template <typename Product> class FewVectorRows {
  using Engine = typename Product::Engine;

 public:
  static constexpr int kMostRows = Engine::kRows;

  // Whether the engine's product of such a job is made of what this class does.
  static bool takes(const MatmulJob& job) {
    const WeightView& w = job.weight;
    if (job.tokens > kMostRows || !w.is_packed() || w.columns % kStep != 0) return false;
    if (w.group % kStep != 0 || w.packed.width % kF32Lanes != 0) return false;
    return (w.packed.bits == 8 || takes_nibbles(w)) && Product::takes(job);
  }
  static std::int64_t x_elements(const MatmulJob& job) {
    return Product::x_elements(kMostRows * job.weight.columns);
  }

  // x: room for x_elements. row_sums [groups][sums_stride] of X for weights with mins whose numbers are multiplied
  // alone, else null.
  FewVectorRows(const MatmulJob& job, float* x, const float* row_sums, std::int64_t row_sums_stride)
      : job_(job),
        rows_(Engine::narrow_rows(static_cast<int>(job.tokens))),
        depth_(job.weight.columns),
        group_(job.scaling == Scaling::at_end ? depth_ : job.group),
        x_(Product::load_x(job.packed_x, rows_ * depth_, x)),
        row_sums_(row_sums),
        row_sums_stride_(row_sums_stride) {}

  // sums [rows, sums_stride] of `count` panels of the engine.
  void multiply(std::int64_t panel, std::int64_t count, float* sums,
                std::int64_t sums_stride) const {
    const Block block{panel * kPanel, sums, sums_stride};
    const WeightView& w = job_.weight;
    if (w.packed.bits == 4) {
      w.packed.has_zeros ? multiply_vectors<NibbleColumns<ColumnZeros>>(block, kPanel * count)
                         : multiply_vectors<NibbleColumns<FixedZero>>(block, kPanel * count);
      return;
    }
    if constexpr (sizeof(typename Engine::Element) == 2) {
      if (w.codes == Codes::fp8_e4m3) {
        return multiply_vectors<ByteColumns<DecodeFp8<kE4M3>>>(block, kPanel * count);
      }
      if (w.codes == Codes::fp8_e5m2) {
        return multiply_vectors<ByteColumns<DecodeFp8<kE5M2>>>(block, kPanel * count);
      }
    }
    multiply_vectors<ByteColumns<DecodeI8>>(block, kPanel * count);
  }

 private:
  static constexpr int kPanel = Engine::kCols / kF32Lanes;  // vectors
  static constexpr int kStep = 8;                           // k of a word or two
  static constexpr std::int64_t kAhead = 512;               // bytes of a panel
  // Accumulators: the registers that codes, numbers and zeros leave.
  static constexpr int kChains = HWY_TARGET == HWY_AVX2 || kFmaRows == 4 ? 8 : 16;

  static bool takes_nibbles(const WeightView& w) {
    return w.packed.bits == 4 && (NibbleTable::kTakesTables || !has_table(w));
  }

  struct Block {
    std::int64_t vector;  // of columns, counted over all panels
    float* sums;
    std::int64_t sums_stride;

    Block after(int vectors) const {
      return {vector + vectors, sums + vectors * kF32Lanes, sums_stride};
    }
  };
  // Where one vector of columns stands. A panel of the engine may be wider than the packed one, and the last one then
  // end beyond it: its last vectors take the place of those that are missing, and go nowhere.
  struct Place {
    const std::byte* codes;
    std::int64_t panel;
    std::int64_t column;
  };
  Place place_of(std::int64_t vector) const {
    const PackedLayout& packed = job_.weight.packed;
    const std::int64_t in_panel = packed.width / kF32Lanes;
    const std::int64_t last = packed.panels * in_panel - 1;
    const std::int64_t panel = (vector < last ? vector : last) / in_panel;
    const std::int64_t column = ((vector < last ? vector : last) - panel * in_panel) * kF32Lanes;
    return {job_.weight.data + panel * packed.panel_bytes + 4 * column, panel, column};
  }
  PackedScales scales_of(const Place& place) const { return {job_.weight, place.panel}; }

  template <typename Codes> void multiply_vectors(Block block, std::int64_t count) const {
    on_width<kMostRows>(rows_, [&](auto tag) {
      using Columns = typename Product::template Columns<Codes>;
      constexpr int kRows = decltype(tag)::kRows;
      constexpr int kVectors = kRows == 1 ? 8 : kChains / kRows;
      constexpr int kRest = kVectors < kPanel ? kVectors : kPanel;
      std::int64_t left = count;
      for (; left >= kVectors; left -= kVectors, block = block.after(kVectors)) {
        multiply_block<Columns, kRows, kVectors>(block);
      }
      for (; left > 0; left -= kRest, block = block.after(kRest)) {
        multiply_block<Columns, kRows, kRest>(block);
      }
    });
  }

  template <int kRows, int kVectors> using Sums = F32Vector[kRows][kVectors];

  template <typename Columns, int kRows, int kVectors>
  void multiply_block(const Block& block) const {
    Place places[kVectors];
    for (int v = 0; v < kVectors; ++v) places[v] = place_of(block.vector + v);
    std::int64_t k = 0;
    for (std::int64_t group = 0; k < depth_; ++group) {
      const std::int64_t end = k + group_ < depth_ ? k + group_ : depth_;
      Sums<kRows, kVectors> products;
      for (bool is_first = true; k < end; is_first = false) {
        const std::int64_t stop = k + Engine::kSummed < end ? k + Engine::kSummed : end;
        sum_part<Columns>(places, k, stop, is_first, products);
        k = stop;
      }
      job_.scaling == Scaling::at_end ? store(block, products)
                                      : scale_group(block, places, group, products);
    }
  }

  // products = or += the products of k in [first, last), a chain for every row and column.
  template <typename Columns, int kRows, int kVectors>
  void sum_part(const Place (&places)[kVectors], std::int64_t first, std::int64_t last,
                bool is_first, F32Vector (&products)[kRows][kVectors]) const {
    const WeightView& w = job_.weight;
    const auto shared = Columns::shared(w);
    const std::int64_t line = std::int64_t{w.packed.width} * Columns::kBits / 8;  // of one k
    Sums<kRows, kVectors> chains;
    for (auto& row : chains) {
      for (F32Vector& chain : row) chain = hn::Zero(F32Tag());
    }
    Columns columns[kVectors];
    std::int64_t group = first / w.group;
    for (std::int64_t k = first; k < last; ++group) {
      const std::int64_t end = (group + 1) * w.group < last ? (group + 1) * w.group : last;
      for (int v = 0; v < kVectors; ++v) {
        columns[v].start(scales_of(places[v]), group, places[v].column);
      }
      for (; k < end; k += kStep) {
#pragma GCC unroll 8  // as all loops over vectors and rows: accumulators stay in registers
        for (int v = 0; v < kVectors; ++v) {
          const std::byte* source = places[v].codes + k * line;
          __builtin_prefetch(source + kAhead);
          columns[v].load(source, w.packed.width);
        }
        add_step(shared, columns, x_ + k * kRows, chains, std::make_integer_sequence<int, kStep>());
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        products[r][v] = is_first ? chains[r][v] : hn::Add(products[r][v], chains[r][v]);
      }
    }
  }

  // chains += x [kStep / kDepth][kRows][kDepth] · the numbers, one k after the other.
  template <typename Columns, int kRows, int kVectors, int... kOnes>
  HWY_INLINE static void add_step(const typename Columns::Shared& shared,
                                  const Columns (&columns)[kVectors], const float* x,
                                  F32Vector (&chains)[kRows][kVectors],
                                  std::integer_sequence<int, kOnes...>) {
    (add_one<kOnes>(shared, columns, x, chains), ...);
  }
  template <int kOne, typename Columns, int kRows, int kVectors>
  HWY_INLINE static void add_one(const typename Columns::Shared& shared,
                                 const Columns (&columns)[kVectors], const float* x,
                                 F32Vector (&chains)[kRows][kVectors]) {
    constexpr int kDepth = Engine::kDepth;
    F32Vector numbers[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) numbers[v] = columns[v].template number<kOne>(shared);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float one = x[(kOne / kDepth * kRows + r) * kDepth + kOne % kDepth];
      const F32Vector row = hn::Set(F32Tag(), one);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) chains[r][v] = hn::MulAdd(row, numbers[v], chains[r][v]);
    }
  }

  template <int kRows, int kVectors>
  static void store(const Block& block, const F32Vector (&products)[kRows][kVectors]) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(products[r][v], F32Tag(), block.sums + r * block.sums_stride + v * kF32Lanes);
      }
    }
  }

  // sums (+)= products · scales of the group, as SumUpdate does it.
  template <int kRows, int kVectors>
  void scale_group(const Block& block, const Place (&places)[kVectors], std::int64_t group,
                   const F32Vector (&products)[kRows][kVectors]) const {
    const F32Tag f32;
    for (int v = 0; v < kVectors; ++v) {
      const PackedScales scales = scales_of(places[v]);
      const F32Vector scale = scales.scale(group, places[v].column);
      const F32Vector min = scales.min(group, places[v].column);
      for (int r = 0; r < kRows; ++r) {
        float* sums = block.sums + r * block.sums_stride + v * kF32Lanes;
        F32Vector sum = group == 0 ? hn::Mul(products[r][v], scale)
                                   : hn::MulAdd(products[r][v], scale, hn::LoadU(f32, sums));
        if (row_sums_ != nullptr) {
          const float x = row_sums_[group * row_sums_stride_ + r];
          sum = hn::MulAdd(min, hn::Set(f32, x), sum);
        }
        hn::StoreU(sum, f32, sums);
      }
    }
  }

  const MatmulJob& job_;
  int rows_;
  std::int64_t depth_;
  std::int64_t group_;  // columns between two updates of the sums
  const float* x_;      // [depth / kDepth][rows_][kDepth]
  const float* row_sums_;
  std::int64_t row_sums_stride_;
};

template <> class FewRows<F32Engine> : public FewVectorRows<F32Product> {
 public:
  using FewVectorRows::FewVectorRows;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
