// SPDX-License-Identifier: Apache-2.0
// Columns of Y with int8 activations, straight from the packed words: vectors of columns and a few
// rows run over the whole depth, their products in registers. Products of a group are exact integers;
// sums (+)= (products − zero · sum of the row's codes) · (scale of the column · scale of the row)
// (+ min of the column · (sum of the row's codes · scale of the row)).
#pragma once

#include "cpu/simd/carver.h"
#include "cpu/simd/dot_i8.h"
#include "cpu/simd/quantize_x.h"
#include "cpu/simd/row_width.h"
#include "cpu/simd/store_columns.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

class Int8Block {
 public:
  static constexpr int kRows = kF32Lanes == 16 ? 8 : 4;

  static QuantizedRow row_of(const MatmulJob& job) {
    return {.depth = job.weight.packed.depth, .groups = job.weight.packed.groups};
  }

  // What stands for zero among the numbers of a weight whose columns do not differ in it.
  static int zero_of(const WeightView& weight) {
    if (!has_codes(weight)) return kNumberOffset;
    return has_middle_zero(weight) ? 8 : 0;
  }

  Int8Block(const MatmulJob& job, std::int64_t first, std::int64_t last, Carver& carver)
      : job_(job),
        packed_(job.weight.packed),
        row_(row_of(job)),
        first_(first),
        last_(last),
        start_(first / kF32Lanes * kF32Lanes),
        stride_(round_up_to(last - start_, kF32Lanes) + 16),
        sums_(carver.take<float>(min(job.token_block, job.tokens) * stride_)),
        scales_(carver.take<float>(kVectors * packed_.groups * kF32Lanes)),
        mins_(packed_.has_mins ? carver.take<float>(kVectors * packed_.groups * kF32Lanes)
                               : nullptr),
        cache_scales_(carver.take<float>(job.bands[0].plan.num_granules + 1)) {}

  void run() {
    for (std::int64_t token = 0; token < job_.tokens; token += job_.token_block) {
      const std::int64_t count = min(job_.token_block, job_.tokens - token);
      for (std::int64_t n = start_; n < last_;) {
        const std::int64_t vectors = (last_ - n + kF32Lanes - 1) / kF32Lanes;
        n += multiply_columns(token, count, n, vectors) * kF32Lanes;
      }
      store_tokens(token, count);
    }
  }

 private:
  static std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static bool has_codes(const WeightView& weight) {
    return weight.packed.bits == 4 && !has_table(weight);
  }

  // Accumulators: enough chains to hide the latency of a product, and registers left for words.
  static constexpr int kChains = kF32Lanes == 16 ? 16 : 8;
  static constexpr int kVectors = 4;  // of columns, at most
  // Bytes of words that are fetched early. One row waits for memory alone, and the hardware's streams keep up with it;
  // several rows take so long over a line that they do not: measured on Cascade Lake with one and eight.
  static constexpr std::int64_t ahead_of(int rows) { return rows == 1 ? 1024 : 4096; }
  // A word of X is broadcast once for the vectors of a block, and few rows wait for memory alone, which is faster in
  // several places at once.
  static constexpr int vectors_for(int rows) {
    return rows * kVectors <= kChains ? kVectors : kChains / rows;
  }

  std::byte* row_at(std::int64_t token) const { return job_.packed_x + token * row_.bytes(); }

  // `count` rows times vectors of columns from n on, at most `vectors`; how many it took.
  std::int64_t multiply_columns(std::int64_t token, std::int64_t count, std::int64_t n,
                                std::int64_t vectors) {
    const int most = vectors_for(power_of_two_rows(static_cast<int>(min(kRows, count)), kRows));
    const int taken = most <= vectors ? most : 1;
    for (int v = 0; v < taken; ++v) load_scales(n + v * kF32Lanes, v);
    for (std::int64_t row = 0; row < count; row += kRows) {
      const auto left = static_cast<int>(min(kRows, count - row));
      on_width<kRows>(power_of_two_rows(left, kRows), [&](auto tag) {
        constexpr int kCount = decltype(tag)::kRows;
        std::byte* x[kCount];
        float* sums[kCount];
        for (int i = 0; i < kCount; ++i) {  // the last row stands in for those that are missing
          const std::int64_t at = row + (i < left ? i : left - 1);
          x[i] = row_at(token + at);
          sums[i] = sums_ + at * stride_ + (n - start_);
        }
        on_words([&](const auto& words) {
          if (taken == 1) return multiply_rows<kCount, 1>(words, x, sums, n);
          if (taken == vectors_for(kRows)) {
            return multiply_rows<kCount, vectors_for(kRows)>(words, x, sums, n);
          }
          multiply_rows<kCount, vectors_for(kCount)>(words, x, sums, n);
        });
      });
    }
    return taken;
  }

  // Scales and mins of one vector of columns: [groups][lanes].
  void load_scales(std::int64_t n, int vector) {
    const std::int64_t first = vector * packed_.groups * kF32Lanes;
    const PackedScales scales(job_.weight, n / packed_.width);
    scales.load_column(n % packed_.width, scales_ + first);
    if (mins_ != nullptr) scales.load_column_mins(n % packed_.width, mins_ + first);
  }

  // The two words of eight k, and how they are multiplied.
  struct NibbleWords {
    static constexpr bool kAreCodes = true;
    static void load(const std::byte* source, std::int64_t, U32Vector (&words)[2]) {
      const U32Vector both = load_words(source);
      words[0] = bits_at<0>(both, 0x0f0f0f0fu);
      words[1] = bits_at<4>(both, 0x0f0f0f0fu);
    }
    static I32Vector dot(I32Vector sums, U32Vector words, U32Vector x) {
      return dot_codes(sums, words, x);
    }
  };
  struct ByteWords {
    static constexpr bool kAreCodes = false;
    static void load(const std::byte* source, std::int64_t width, U32Vector (&words)[2]) {
      words[0] = load_words(source);
      words[1] = load_words(source + 4 * width);
    }
    static I32Vector dot(I32Vector sums, U32Vector words, U32Vector x) {
      return dot_numbers(sums, words, x);
    }
  };

  struct TableWords {
    static constexpr bool kAreCodes = false;
    TableNumbers table;

    void load(const std::byte* source, std::int64_t, U32Vector (&words)[2]) const {
      const U32Vector both = load_words(source);
      words[0] = table.low(both);
      words[1] = table.high(both);
    }
    static I32Vector dot(I32Vector sums, U32Vector words, U32Vector x) {
      return dot_numbers(sums, words, x);
    }
  };

  template <typename Function> void on_words(Function&& function) const {
    if (packed_.bits == 8) return function(ByteWords{});
    if (has_codes(job_.weight)) return function(NibbleWords{});
    function(TableWords{TableNumbers(job_.weight.block->values)});
  }

  // Words of a vector of columns.
  const std::byte* words_at(std::int64_t n) const {
    return job_.weight.data + n / packed_.width * packed_.panel_bytes + 4 * (n % packed_.width);
  }

  // A block of kCount rows times kColumns vectors of columns: the products of a group, its sums, where X and the words
  // stand. Two chains a product where registers are left: integers may be added in any order.
  template <int kCount, int kColumns> struct Tile {
    static constexpr int kHalves = 2 * kCount * kColumns <= kChains ? 2 : 1;

    I32Vector products[kCount][kColumns][kHalves];
    F32Vector sums[kCount][kColumns];
    const std::byte* sources[kColumns];
  };

  // kCount rows times kColumns vectors of columns from n on.
  template <int kCount, int kColumns, typename Words>
  void multiply_rows(const Words& unpack, std::byte* const (&rows)[kCount],
                     float* const (&out)[kCount], std::int64_t n) const {
    Tile<kCount, kColumns> tile;
    for (int c = 0; c < kColumns; ++c) tile.sources[c] = words_at(n + c * kF32Lanes);
    for (auto& row : tile.sums) {
      for (F32Vector& sum : row) sum = hn::Zero(F32Tag());
    }
    for (std::int64_t g = 0; g < packed_.groups; ++g) {
      start_group<Words>(rows, n, g, tile);
      const std::int64_t first = g * packed_.group;
      multiply_group(unpack, rows, first, min(first + packed_.group, job_.weight.columns), tile);
      scale_group(rows, g, tile);
    }
    for (int i = 0; i < kCount; ++i) {
      for (int c = 0; c < kColumns; ++c) {
        hn::StoreU(tile.sums[i][c], F32Tag(), out[i] + c * kF32Lanes);
      }
    }
  }

  // products = −zero of the column · sum of the row's codes.
  template <typename Words, int kCount, int kColumns>
  HWY_INLINE void start_group(std::byte* const (&rows)[kCount], std::int64_t n, std::int64_t g,
                              Tile<kCount, kColumns>& tile) const {
    const I32Tag i32;
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      const I32Vector start = hn::Set(i32, row_.starts(rows[i])[g]);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        tile.products[i][c][0] = start;
        if (Tile<kCount, kColumns>::kHalves == 2) tile.products[i][c][1] = hn::Zero(i32);
      }
    }
    if (!Words::kAreCodes || !packed_.has_zeros) return;
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const std::int64_t column = n + c * kF32Lanes;
      const PackedScales scales(job_.weight, column / packed_.width);
      const I32Vector zeros =
          hn::BitCast(i32, scales.zeros(g, column % packed_.width, has_middle_zero(job_.weight)));
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        tile.products[i][c][0] = hn::Mul(zeros, hn::Set(i32, -row_.sums(rows[i])[g]));
      }
    }
  }

  template <int kCount, int kColumns, typename Words>
  HWY_INLINE void multiply_group(const Words& unpack, std::byte* const (&rows)[kCount],
                                 std::int64_t first, std::int64_t last,
                                 Tile<kCount, kColumns>& tile) const {
    constexpr int kHalves = Tile<kCount, kColumns>::kHalves;
    const std::int64_t step = packed_.width * packed_.bits;  // bytes of eight k
    for (std::int64_t k = first; k < last; k += 8) {
      U32Vector words[kColumns][2];
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        unpack.load(tile.sources[c], packed_.width, words[c]);
        __builtin_prefetch(tile.sources[c] + ahead_of(kCount));
        tile.sources[c] += step;
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) {
          std::uint32_t four;
          __builtin_memcpy(&four, rows[i] + k + 4 * half, sizeof(four));
          const U32Vector x = hn::Set(U32Tag(), four);
#pragma GCC unroll 8
          for (int c = 0; c < kColumns; ++c) {
            I32Vector& product = tile.products[i][c][half % kHalves];
            product = Words::dot(product, words[c][half], x);
          }
        }
      }
    }
  }

  // sums (+)= products · (scale of the column · scale of the row) (+ min · scaled sum of the row).
  template <int kCount, int kColumns>
  HWY_INLINE void scale_group(std::byte* const (&rows)[kCount], std::int64_t g,
                              Tile<kCount, kColumns>& tile) const {
    const F32Tag f32;
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      const F32Vector row_scale = hn::Set(f32, row_.scales(rows[i])[g]);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        const I32Vector(&products)[Tile<kCount, kColumns>::kHalves] = tile.products[i][c];
        I32Vector total = products[0];
        if constexpr (Tile<kCount, kColumns>::kHalves == 2) total = hn::Add(total, products[1]);
        const F32Vector scale = hn::LoadU(f32, scales_ + (c * packed_.groups + g) * kF32Lanes);
        tile.sums[i][c] =
            hn::MulAdd(hn::ConvertTo(f32, total), hn::Mul(scale, row_scale), tile.sums[i][c]);
      }
    }
    if (mins_ == nullptr) return;
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      const F32Vector x = hn::Set(f32, row_.scaled_sums(rows[i])[g]);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        const F32Vector min = hn::LoadU(f32, mins_ + (c * packed_.groups + g) * kF32Lanes);
        tile.sums[i][c] = hn::MulAdd(min, x, tile.sums[i][c]);
      }
    }
  }

  void store_tokens(std::int64_t token, std::int64_t count) {
    for (std::int64_t t = 0; t < count; ++t) {
      store_sums(job_, token + t, first_, last_, sums_ + t * stride_ + (first_ - start_),
                 cache_scales_);
    }
  }

  const MatmulJob& job_;
  const PackedLayout& packed_;
  QuantizedRow row_;
  std::int64_t first_, last_;  // columns of Y
  std::int64_t start_;         // first_, down to a vector's border
  std::int64_t stride_;
  float* sums_;    // [token block][stride_]
  float* scales_;  // [kVectors][groups][lanes]
  float* mins_;    // the same, null: the weight has none
  float* cache_scales_;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
