// SPDX-License-Identifier: Apache-2.0
// New latent rows finished and queries rotated. Rounding points are those of quire/ops/mla_prefill.h:
// the normalised latent is rounded to gamma's dtype, and so is its product with gamma.
#pragma once

#include "cpu/attention/latent_item.h"
#include "cpu/attention/row_decode.h"
#include "cpu/simd/carver.h"
#include "cpu/simd/encode_row.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// (a, b) → (a·cos - b·sin, a·sin + b·cos) of the pairs (2j, 2j + 1).
inline void rotate_pairs(float* values, const float* freqs, std::int64_t count) {
  for (std::int64_t even = 0; even < count; even += 2) {
    const double a = values[even];
    const double b = values[even + 1];
    const double cosine = freqs[even];
    const double sine = freqs[even + 1];
    values[even] = static_cast<float>(a * cosine - b * sine);
    values[even + 1] = static_cast<float>(a * sine + b * cosine);
  }
}

inline void round_to_type(DType dtype, float* values, std::int64_t count, std::byte* buffer) {
  if (dtype == DType::f32) return;
  narrow_row(dtype, values, count, buffer);
  widen_row(dtype, buffer, count, values);
}

struct FinishSpace {
  FinishSpace(const FinishItem& item, std::byte* block) {
    Carver carver(block);
    values = carver.take<float>(item.latent + item.rope);
    gamma = carver.take<float>(item.latent);
    freqs = carver.take<float>(item.rope);
    scales = carver.take<float>(item.plan.num_granules);
    rounded = carver.take<std::byte>(item.latent * 4);
    used = carver.used();
  }

  float* values;
  float* gamma;
  float* freqs;
  float* scales;
  std::byte* rounded;
  std::int64_t used;
};

// x · rsqrt(mean x² + ε) in double, as its one rounding decides bits of the cache.
inline void normalise(const FinishItem& item, const FinishSpace& space) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < item.latent; ++i) {
    squares += static_cast<double>(space.values[i]) * space.values[i];
  }
  const double mean = squares / static_cast<double>(item.latent);
  const double factor = 1.0 / __builtin_sqrt(mean + item.epsilon);
  for (std::int64_t i = 0; i < item.latent; ++i) {
    space.values[i] = static_cast<float>(space.values[i] * factor);
  }
  round_to_type(item.gamma_dtype, space.values, item.latent, space.rounded);
  for (std::int64_t i = 0; i < item.latent; ++i) space.values[i] *= space.gamma[i];
  round_to_type(item.gamma_dtype, space.values, item.latent, space.rounded);
}

inline void finish_rows(const FinishItem& item, std::byte* scratch) {
  const FinishSpace space(item, scratch);
  const std::int64_t width = item.latent + item.rope;
  widen_row(item.gamma_dtype, item.gamma, item.latent, space.gamma);
  for (std::int64_t r = 0; r < item.num_rows; ++r) {
    const LatentRow& row = item.rows[r];
    if (row.row == nullptr) continue;
    if (row.raw != nullptr) {
      widen_row(item.raw_dtype, row.raw, width, space.values);
    } else {
      decode_row(item.plan, {.row = row.row, .plane = row.plane}, width, space.values);
    }
    normalise(item, space);
    widen_row(item.freqs_dtype, row.freqs, item.rope, space.freqs);
    rotate_pairs(space.values + item.latent, space.freqs, item.rope);
    encode_row(item.plan, space.values, row.row, row.plane, space.scales);
  }
}

// In pieces that fit the stack; a piece holds whole pairs.
inline void rotate_heads(const RotateItem& item) {
  constexpr std::int64_t kPiece = 64;
  alignas(64) float values[kPiece];
  alignas(64) float freqs[kPiece];
  for (std::int64_t head = 0; head < item.num_heads; ++head) {
    const std::byte* from = item.q + head * item.q_head_stride;
    std::byte* to = item.out + head * item.out_head_stride;
    const std::int64_t width = item.copied + item.rope;
    for (std::int64_t column = 0; column < width;) {
      const bool is_rope = column >= item.copied;
      const std::int64_t left = (is_rope ? width : item.copied) - column;
      const std::int64_t count = left < kPiece ? left : kPiece;
      widen_row(item.q_dtype, from + bytes_for(item.q_dtype, column), count, values);
      if (is_rope) {
        const std::int64_t first = column - item.copied;
        widen_row(item.freqs_dtype, item.freqs + bytes_for(item.freqs_dtype, first), count, freqs);
        rotate_pairs(values, freqs, count);
      }
      narrow_row(item.out_dtype, values, count, to + bytes_for(item.out_dtype, column));
      column += count;
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
