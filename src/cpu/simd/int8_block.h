// SPDX-License-Identifier: Apache-2.0
// Columns of Y with int8 activations, straight from the packed words: a vector of columns and a few
// rows run over the whole depth, their sums in registers. Products of a group are exact integers;
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
      std::int64_t n = start_;
      // One row waits for memory alone, which is faster in several places at once.
      for (; count == 1 && n + kVectors * kF32Lanes <= last_; n += kVectors * kF32Lanes) {
        multiply_row(token, n);
      }
      for (; n < last_; n += kF32Lanes) multiply_columns(token, count, n);
      store_tokens(token, count);
    }
  }

 private:
  static std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

  static constexpr int kVectors = 4;  // of columns, for one row

  std::byte* row_at(std::int64_t token) const { return job_.packed_x + token * row_.bytes(); }

  void multiply_row(std::int64_t token, std::int64_t n) {
    for (int v = 0; v < kVectors; ++v) load_scales(n + v * kF32Lanes, v);
    std::byte* rows[1] = {row_at(token)};
    float* sums[1] = {sums_ + (n - start_)};
    on_words([&](const auto& words) { multiply_rows<1, kVectors>(words, rows, sums, n); });
  }

  void multiply_columns(std::int64_t token, std::int64_t count, std::int64_t n) {
    load_scales(n, 0);
    for (std::int64_t row = 0; row < count; row += kRows) {
      const auto left = static_cast<int>(min(kRows, count - row));
      on_width<kRows>(power_of_two_rows(left, kRows), [&](auto tag) {
        constexpr int kCount = decltype(tag)::kRows;
        std::byte* rows[kCount];
        float* sums[kCount];
        for (int i = 0; i < kCount; ++i) {  // the last row stands in for those that are missing
          const std::int64_t at = row + (i < left ? i : left - 1);
          rows[i] = row_at(token + at);
          sums[i] = sums_ + at * stride_ + (n - start_);
        }
        on_words([&](const auto& words) { multiply_rows<kCount, 1>(words, rows, sums, n); });
      });
    }
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
    const BlockFormat* block = job_.weight.block;
    if (packed_.bits == 8) return function(ByteWords{});
    if (block == nullptr || !block->has_table) return function(NibbleWords{});
    function(TableWords{TableNumbers(block->values)});
  }

  template <typename Words>
  I32Vector zeros(const PackedScales& scales, std::int64_t group, std::int64_t column) const {
    const I32Tag i32;
    if (!Words::kAreCodes) return hn::Set(i32, kNumberOffset);
    return hn::BitCast(i32, scales.zeros(group, column, has_middle_zero(job_.weight)));
  }

  // Words of a vector of columns.
  const std::byte* words_at(std::int64_t n) const {
    return job_.weight.data + n / packed_.width * packed_.panel_bytes + 4 * (n % packed_.width);
  }

  // kCount rows times kColumns vectors of columns from n on.
  template <int kCount, int kColumns, typename Words>
  void multiply_rows(const Words& unpack, std::byte* const (&rows)[kCount],
                     float* const (&out)[kCount], std::int64_t n) const {
    const F32Tag f32;
    const I32Tag i32;
    const std::int64_t step = packed_.width * packed_.bits;  // bytes of eight k
    const std::byte* sources[kColumns];
    for (int c = 0; c < kColumns; ++c) sources[c] = words_at(n + c * kF32Lanes);
    F32Vector sums[kCount][kColumns];
    for (auto& row : sums) {
      for (F32Vector& sum : row) sum = hn::Zero(f32);
    }
    std::int64_t k = 0;
    for (std::int64_t g = 0; g < packed_.groups; ++g) {
      I32Vector products[kCount][kColumns][2];  // two chains: integers may be added in any order
      for (auto& row : products) {
        for (auto& column : row) column[0] = column[1] = hn::Zero(i32);
      }
      const std::int64_t end = min((g + 1) * packed_.group, job_.weight.columns);
      for (; k < end; k += 8) {
        for (int c = 0; c < kColumns; ++c) {
          U32Vector words[2];
          unpack.load(sources[c], packed_.width, words);
          sources[c] += step;
          for (int i = 0; i < kCount; ++i) {
            for (int half = 0; half < 2; ++half) {
              std::uint32_t four;
              __builtin_memcpy(&four, rows[i] + k + 4 * half, sizeof(four));
              products[i][c][half] =
                  Words::dot(products[i][c][half], words[half], hn::Set(U32Tag(), four));
            }
          }
        }
      }
      for (int c = 0; c < kColumns; ++c) {
        const std::int64_t column = n + c * kF32Lanes;
        const I32Vector zero = zeros<Words>(PackedScales(job_.weight, column / packed_.width), g,
                                            column % packed_.width);
        const std::int64_t factors = (c * packed_.groups + g) * kF32Lanes;
        const F32Vector scale = hn::LoadU(f32, scales_ + factors);
        for (int i = 0; i < kCount; ++i) {
          const I32Vector offset = hn::Mul(zero, hn::Set(i32, row_.sums(rows[i])[g]));
          const I32Vector total = hn::Sub(hn::Add(products[i][c][0], products[i][c][1]), offset);
          const F32Vector factor = hn::Mul(scale, hn::Set(f32, row_.scales(rows[i])[g]));
          sums[i][c] = hn::MulAdd(hn::ConvertTo(f32, total), factor, sums[i][c]);
          if (mins_ == nullptr) continue;
          const F32Vector x = hn::Set(f32, row_.scaled_sum(rows[i], g));
          sums[i][c] = hn::MulAdd(hn::LoadU(f32, mins_ + factors), x, sums[i][c]);
        }
      }
    }
    for (int i = 0; i < kCount; ++i) {
      for (int c = 0; c < kColumns; ++c) hn::StoreU(sums[i][c], f32, out[i] + c * kF32Lanes);
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
