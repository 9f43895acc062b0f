// SPDX-License-Identifier: Apache-2.0
// Products of a few f32 rows with rows of kStored numbers that are read once: dots, and weighted sums.
#pragma once

#include <type_traits>

#include "cpu/attention/key_streams.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr int kRowsAtOnce = 4;
// Sums that fit into the registers: 16 where there are 32 of them.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kKeysAtOnce = 4;
#else
inline constexpr int kKeysAtOnce = 2;
#endif
inline constexpr int kVectorsAtOnce = kKeysAtOnce;

#if defined(__AVX512F__)
// out[i] ← the sum of the lanes of sums[i]. Pairs of vectors are folded into one, four times over.
HWY_INLINE void sum_lanes(F32Vector (&sums)[16], float* out) {
  __m512 t[8];
  for (int i = 0; i < 8; ++i) {
    t[i] = _mm512_add_ps(_mm512_unpacklo_ps(sums[2 * i].raw, sums[2 * i + 1].raw),
                         _mm512_unpackhi_ps(sums[2 * i].raw, sums[2 * i + 1].raw));
  }
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(t[2 * i]);
    const __m512d b = _mm512_castps_pd(t[2 * i + 1]);
    t[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  for (int i = 0; i < 2; ++i) {
    t[i] = _mm512_add_ps(_mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0xdd));
  }
  const __m512 last =
      _mm512_add_ps(_mm512_shuffle_f32x4(t[0], t[1], 0x88), _mm512_shuffle_f32x4(t[0], t[1], 0xdd));
  _mm512_store_ps(out, last);
}
#endif
template <int kCount> HWY_INLINE void sum_lanes(F32Vector (&sums)[kCount], float* out) {
  const F32Tag f32;
  for (int i = 0; i < kCount; ++i) out[i] = hn::GetLane(hn::SumOfLanes(f32, sums[i]));
}

// kCount vectors of a row; `factor` is read of codes.
template <DType kStored, int kCount>
HWY_INLINE void load_vectors(const std::byte* source, [[maybe_unused]] const float* factor,
                             F32Vector (&found)[kCount]) {
  constexpr std::int64_t kBytes = kF32Lanes * kElementBytes<kStored>;
  constexpr bool kInUnits = kStored == DType::fp8_e4m3 && kCount % 2 == 0;
  if constexpr (kInUnits) {
    for (int v = 0; v < kCount; v += 2) {
      F32Vector units[2];
      load_e4m3_units(source + v * kBytes, units);
      found[v] = units[0];
      found[v + 1] = units[1];
    }
  } else {
    for (int v = 0; v < kCount; ++v) found[v] = load_as_f32<kStored>(source + v * kBytes);
  }
  if constexpr (is_code(kStored)) {
    const F32Vector by = hn::Set(F32Tag(), kInUnits ? *factor : *factor / code_unit(kStored));
    for (F32Vector& vector : found) vector = hn::Mul(vector, by);
  }
}

// step(number of vectors, column) for the whole vectors of a row, as many at once as are made at once; the first column
// behind them.
template <DType kStored, typename Step>
HWY_INLINE std::int64_t over_vectors(std::int64_t width, const Step& step) {
  constexpr int kWide = kStored == DType::fp8_e4m3 ? 2 : 1;
  std::int64_t column = 0;
  for (; column + kWide * kF32Lanes <= width; column += kWide * kF32Lanes) {
    step(std::integral_constant<int, kWide>(), column);
  }
  if (column + kF32Lanes > width) return column;
  step(std::integral_constant<int, 1>(), column);
  return column + kF32Lanes;
}

template <DType kStored>
inline float element(const std::byte* row, [[maybe_unused]] const float* factor,
                     std::int64_t index) {
  const float number = widen_one(kStored, row + index * kElementBytes<kStored>);
  if constexpr (!is_code(kStored)) return number;
  return number * (*factor / code_unit(kStored));
}

// Rows are prefetched while those before them are multiplied: faster on Cascade Lake, never on Sapphire Rapids with AMX.
#if defined(__x86_64__) && !defined(__AMX_BF16__)
inline constexpr bool kPrefetchesRows = true;
#else
inline constexpr bool kPrefetchesRows = false;
#endif
HWY_INLINE void prefetch_row(const std::byte* row, std::int64_t bytes) {
  if (!kPrefetchesRows) return;
  for (std::int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte);
}

// out[r · row_stride + i · key_stride] ← rows[r · width …] · keys[i]
template <DType kStored>
HWY_INLINE void dot_products(const float* rows, std::int64_t width,
                             const std::byte* const (&keys)[kKeysAtOnce], const float* factors,
                             float* out, std::int64_t row_stride, std::int64_t key_stride) {
  const F32Tag f32;
  F32Vector sums[kRowsAtOnce * kKeysAtOnce];
  for (F32Vector& sum : sums) sum = hn::Zero(f32);
  const std::int64_t k = over_vectors<kStored>(width, [&](auto vectors, std::int64_t column) {
    constexpr int kVectors = decltype(vectors)::value;
    F32Vector found[kKeysAtOnce][kVectors];
    for (int i = 0; i < kKeysAtOnce; ++i) {
      load_vectors<kStored>(keys[i] + column * kElementBytes<kStored>, factors + i, found[i]);
    }
    for (int v = 0; v < kVectors; ++v) {
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const F32Vector row = hn::LoadU(f32, rows + r * width + column + v * kF32Lanes);
        for (int i = 0; i < kKeysAtOnce; ++i) {
          sums[r * kKeysAtOnce + i] = hn::MulAdd(row, found[i][v], sums[r * kKeysAtOnce + i]);
        }
      }
    }
  });
  alignas(64) float totals[kRowsAtOnce * kKeysAtOnce];
  sum_lanes(sums, totals);
  for (std::int64_t j = k; j < width; ++j) {
    for (int i = 0; i < kKeysAtOnce; ++i) {
      const float key = element<kStored>(keys[i], factors + i, j);
      for (int r = 0; r < kRowsAtOnce; ++r) {
        totals[r * kKeysAtOnce + i] += rows[r * width + j] * key;
      }
    }
  }
  for (int r = 0; r < kRowsAtOnce; ++r) {
    for (int i = 0; i < kKeysAtOnce; ++i) {
      out[r * row_stride + i * key_stride] = totals[r * kKeysAtOnce + i];
    }
  }
}

// One lane of hn::MulAdd, fused where that is: a column's bits do not depend on the width of its row.
HWY_INLINE float multiply_add(float a, float b, float c) {
  const F32Tag f32;
  return hn::GetLane(hn::MulAdd(hn::Set(f32, a), hn::Set(f32, b), hn::Set(f32, c)));
}

// The rows of some keys: `factors` are read of codes.
struct ValueRows {
  const std::byte* const* rows;  // [count]
  const float* factors;          // [count]
  int count;
};

#if defined(__aarch64__)
// sums [kRowsAtOnce, width] (+)= Σ weights[r · row_stride + s · key_stride] · values[s] of kKeysAtOnce keys.
template <DType kStored>
HWY_INLINE void add_keys(const float* weights, std::int64_t row_stride, std::int64_t key_stride,
                         const ValueRows& values, int first, std::int64_t width, float* sums) {
  const F32Tag f32;
  const bool starts = first == 0;
  F32Vector weight[kRowsAtOnce][kKeysAtOnce];
  for (int r = 0; r < kRowsAtOnce; ++r) {
    for (int s = 0; s < kKeysAtOnce; ++s) {
      weight[r][s] = hn::Set(f32, weights[r * row_stride + s * key_stride]);
    }
  }
  std::int64_t k = over_vectors<kStored>(width, [&](auto vectors, std::int64_t column) {
    constexpr int kVectors = decltype(vectors)::value;
    F32Vector found[kKeysAtOnce][kVectors];
    for (int s = 0; s < kKeysAtOnce; ++s) {
      load_vectors<kStored>(values.rows[first + s] + column * kElementBytes<kStored>,
                            values.factors + first + s, found[s]);
    }
    for (int v = 0; v < kVectors; ++v) {
      for (int r = 0; r < kRowsAtOnce; ++r) {
        float* at = sums + r * width + column + v * kF32Lanes;
        F32Vector sum = starts ? hn::Zero(f32) : hn::LoadU(f32, at);
        for (int s = 0; s < kKeysAtOnce; ++s) sum = hn::MulAdd(weight[r][s], found[s][v], sum);
        hn::StoreU(sum, f32, at);
      }
    }
  });
  for (; k < width; ++k) {
    for (int r = 0; r < kRowsAtOnce; ++r) {
      float& sum = sums[r * width + k];
      if (starts) sum = 0.0f;
      for (int s = 0; s < kKeysAtOnce; ++s) {
        const float value = element<kStored>(values.rows[first + s], values.factors + first + s, k);
        sum = multiply_add(weights[r * row_stride + s * key_stride], value, sum);
      }
    }
  }
}

// outs[r] [width] += Σ weights[r · row_stride + s · key_stride] · values[s], the sum made before it is added: equal terms
// one by one onto a growing out would all be rounded to the same side. The sums stand in memory, a few keys are read
// from end to end: column by column the rows of all keys, which lie a power of two apart, would meet in the same sets
// of a cache of four ways.
template <DType kStored>
HWY_INLINE void add_weighted(const float* weights, std::int64_t row_stride, std::int64_t key_stride,
                             const ValueRows& values, std::int64_t width, float* sums,
                             float* const (&outs)[kRowsAtOnce]) {
  const F32Tag f32;
  for (int s = 0; s < values.count; s += kKeysAtOnce) {
    add_keys<kStored>(weights + s * key_stride, row_stride, key_stride, values, s, width, sums);
  }
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const float* sum = sums + r * width;
    std::int64_t k = 0;
    for (; k + kF32Lanes <= width; k += kF32Lanes) {
      hn::StoreU(hn::Add(hn::LoadU(f32, outs[r] + k), hn::LoadU(f32, sum + k)), f32, outs[r] + k);
    }
    for (; k < width; ++k) outs[r][k] += sum[k];
  }
}
#else
// outs[r] [width] += Σ weights[r · row_stride + s · key_stride] · values[s], the sum made before it is added: equal terms
// one by one onto a growing out would all be rounded to the same side. They are made in registers, a few columns of
// all keys at a time; `sums` is for targets that do otherwise.
template <DType kStored>
HWY_INLINE void add_weighted(const float* weights, std::int64_t row_stride, std::int64_t key_stride,
                             const ValueRows& values, std::int64_t width,
                             [[maybe_unused]] float* sums, float* const (&outs)[kRowsAtOnce]) {
  const F32Tag f32;
  std::int64_t k = 0;
  constexpr std::int64_t kColumns = kVectorsAtOnce * kF32Lanes;
  constexpr int kAhead = 8;  // keys
  for (; k + kColumns <= width; k += kColumns) {
    const std::int64_t place = k * kElementBytes<kStored>;
    F32Vector sums[kRowsAtOnce][kVectorsAtOnce];
    for (auto& row_sums : sums) {
      for (F32Vector& sum : row_sums) sum = hn::Zero(f32);
    }
    for (int s = 0; s < values.count; ++s) {
      if (s + kAhead < values.count) {
        prefetch_row(values.rows[s + kAhead] + place, kColumns * kElementBytes<kStored>);
      }
      F32Vector found[kVectorsAtOnce];
      load_vectors<kStored>(values.rows[s] + place, values.factors + s, found);
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const F32Vector weight = hn::Set(f32, weights[r * row_stride + s * key_stride]);
        for (int v = 0; v < kVectorsAtOnce; ++v) {
          sums[r][v] = hn::MulAdd(weight, found[v], sums[r][v]);
        }
      }
    }
    for (int r = 0; r < kRowsAtOnce; ++r) {
      for (int v = 0; v < kVectorsAtOnce; ++v) {
        float* out = outs[r] + k + v * kF32Lanes;
        hn::StoreU(hn::Add(hn::LoadU(f32, out), sums[r][v]), f32, out);
      }
    }
  }
  for (int r = 0; r < kRowsAtOnce; ++r) {
    for (std::int64_t j = k; j < width; ++j) {
      float sum = 0.0f;
      for (int s = 0; s < values.count; ++s) {
        sum = multiply_add(weights[r * row_stride + s * key_stride],
                           element<kStored>(values.rows[s], values.factors + s, j), sum);
      }
      outs[r][j] += sum;
    }
  }
}
#endif

}  // namespace quire::cpu::QUIRE_CPU_TARGET
