// SPDX-License-Identifier: Apache-2.0
// The scale of a row and its codes, and where they go: to a page (keys) or to tensors (queries). The two ops differ in
// nothing else.
#pragma once

#include "cuda/any/index_rows/row_steps.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/number.cuh"

namespace quire::cuda::any::index_rows {

// A token's share of a target's addresses, found once for all its rows.
struct TokenTarget {
  std::int64_t position = -1;  // -1: nothing is written
  std::byte* codes = nullptr;  // of head 0
  std::byte* scale = nullptr;
};

// What the page tables say of a token. Between the question and the use of the answer others may be asked.
struct KeyPages {
  std::int64_t position;  // -1: nobody's
  std::int64_t slot;
  std::uint32_t rows;
  std::uint32_t scales;
};

__device__ inline PageColumn slot_of(const KeyTarget& target, std::int64_t position) {
  const std::int64_t column = target.page_size.quotient_of(position);
  return {column, position - column * target.view.page_size};
}

__device__ inline KeyPages look_up(const KeyTarget& target, const TokenPlace& place) {
  const KvLayerView& view = target.view;
  const PageColumn at = slot_of(target, place.position);
  KeyPages pages{.position = -1, .slot = at.slot, .rows = 0, .scales = 0};
  if (!place.exists() || at.column >= view.max_pages) return pages;
  pages.position = place.position;
  pages.rows = page_in(view, place.sequence, at.column);
  if (target.scale_offset < 0 && view.scales.data != nullptr) {
    pages.scales = page_in(view.scales, place.sequence, at.column);
  }
  return pages;
}

__device__ inline TokenTarget locate(const KeyTarget& target, const KeyPages& pages) {
  const KvLayerView& view = target.view;
  if (pages.position < 0 || pages.rows >= view.num_pages) return {};
  std::byte* row =
      view.data + pages.rows * view.page_stride_bytes + pages.slot * view.token_stride_bytes;
  std::byte* scale = row + target.scale_offset;
  if (target.scale_offset < 0) {
    const ScaleLayerView& scales = view.scales;
    const std::int64_t element =
        pages.scales * scales.page_stride + pages.slot * scales.token_stride;
    const bool has_scale = scales.data != nullptr && pages.scales < scales.num_pages;
    scale = has_scale ? scales.data + element * (bits(scales.dtype) / 8) : nullptr;
  }
  return {.position = pages.position, .codes = row + target.codes_offset, .scale = scale};
}

__device__ inline TokenTarget locate(const KeyTarget& target, const TokenPlace& place,
                                     std::int64_t) {
  return locate(target, look_up(target, place));
}

__device__ inline TokenTarget locate(const QueryTarget& target, const TokenPlace& place,
                                     std::int64_t token) {
  if (!place.exists()) return {};
  return {
      .position = place.position,
      .codes = target.out + token * target.out_token_bytes,
      .scale = reinterpret_cast<std::byte*>(target.q_scale + token * target.scale_token_stride)};
}

__device__ inline std::byte* codes_of(const KeyTarget&, const TokenTarget& token, int) {
  return token.codes;
}
__device__ inline std::byte* codes_of(const QueryTarget& target, const TokenTarget& token,
                                      int head) {
  return token.codes + head * target.out_head_bytes;
}

// The gate of a head as its tensor holds it: asked for with the row, decoded where it is used.
__device__ inline unsigned gate_bits(const KeyTarget&, std::int64_t, int) {
  return 0;
}
__device__ inline unsigned gate_bits(const QueryTarget& target, std::int64_t token, int head) {
  if (target.weights == nullptr) return 0;
  return load_bits(target.weights, target.weights_dtype,
                   token * target.weights_token_stride + head * target.weights_head_stride);
}

// What the row's scale is multiplied with before it is stored.
__device__ inline float gate_of(const KeyTarget&, unsigned) {
  return 1.0f;
}
__device__ inline float gate_of(const QueryTarget& target, unsigned bits) {
  if (target.weights == nullptr) return target.factor;
  return target.factor * float_of_bits(bits, target.weights_dtype);
}

__device__ inline void store_scale(const KeyTarget&, const TokenTarget& token, int, float scale) {
  if (token.scale == nullptr) return;
  __builtin_assume(__isGlobal(token.scale));
  *reinterpret_cast<float*>(token.scale) = scale;
}
__device__ inline void store_scale(const QueryTarget& target, const TokenTarget& token, int head,
                                   float scale) {
  __builtin_assume(__isGlobal(token.scale));
  reinterpret_cast<float*>(token.scale)[head * target.scale_head_stride] = scale;
}

// The smallest power of two s with 448 · s >= amax, at least 2^-33: 448 is 1.75 · 2^8.
__device__ inline float power_of_two_scale(float amax) {
  constexpr int kSmallest = 127 - 33;
  const int bits = __float_as_int(amax);
  const int exponent = (bits >> 23) - 8 + ((bits & 0x7fffff) > 0x600000 ? 1 : 0);
  const float scale = __int_as_float(max(exponent, kSmallest) << 23);
  return amax <= 0x1.fffffep+127f ? scale : amax;  // infinity stays
}

__device__ inline float row_scale(ScaleRounding rounding, float amax) {
  return rounding == ScaleRounding::exact ? __fdiv_rn(amax, 448.0f) : power_of_two_scale(amax);
}

template <int kVectors, int kWidth>
__device__ inline float largest(const float (&values)[kVectors][kWidth]) {
  float amax[kRowVectors] = {};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      amax[v % kRowVectors] = fmaxf(amax[v % kRowVectors], fabsf(values[v][i]));
    }
  }
  return fmaxf(fmaxf(amax[0], amax[1]), fmaxf(amax[2], amax[3]));
}

template <int kVectors, int kWidth>
__device__ inline void multiply(float (&values)[kVectors][kWidth], float factor) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[v][i] *= factor;
  }
}

// values · factor / scale, by a reciprocal, which is exact for powers of two. Scales near f32's smallest
// have none: then numbers and scale are raised first. A scale of 0 makes 0 of every number; NaN stays.
template <int kRows, typename Row>
__device__ inline void divide(Row (&rows)[kRows], float factor, const float (&scales)[kRows]) {
  constexpr float kSmallest = 0x1p-100f;
  constexpr float kRaise = 0x1p+80f;
  float raised[kRows];
  bool is_small = false;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    raised[r] = scales[r];
    is_small = is_small || scales[r] < kSmallest;
  }
  if (is_small) {  // one branch, so that the usual rows stay side by side
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (scales[r] >= kSmallest) continue;
      raised[r] *= kRaise;
      multiply(rows[r], kRaise);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    multiply(rows[r], raised[r] == 0.0f ? 0.0f : __fdividef(factor, raised[r]));
  }
}

// The same by scales of power_of_two_scale(), which all have a reciprocal.
template <int kRows, typename Row>
__device__ inline void divide_by_powers(Row (&rows)[kRows], float factor,
                                        const float (&scales)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(scales[r]));
    multiply(rows[r], factor * reciprocal);
  }
}

// Which row of a token, and which of its lanes.
struct RowOfToken {
  int head = 0;
  int lane = 0;
  unsigned gate_bits = 0;  // lane 0's
};

// Codes of a lane's columns: its vectors, `lanes` vectors from one to the next.
template <int kLanes, int kVectors, int kWidth>
__device__ inline void store_vectors(std::byte* to, int lane,
                                     const float (&values)[kVectors][kWidth]) {
  static_assert(kWidth == 4 || kWidth == kVec8);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    std::byte* codes = to + (lane + v * kLanes) * kWidth;
    __builtin_assume(__isGlobal(codes));  // which an address from shared memory does not say
    if constexpr (kWidth == kVec8) {
      *reinterpret_cast<uint2*>(codes) = encode_fp8<__NV_E4M3>(values[v]);
    } else {
      const float vec8[kVec8] = {values[v][0], values[v][1], values[v][2], values[v][3]};
      *reinterpret_cast<unsigned*>(codes) = encode_fp8<__NV_E4M3>(vec8).x;
    }
  }
}

// The same of one run of columns.
template <int kVectors, int kWidth>
__device__ inline void store_run(std::byte* to, int lane, const float (&values)[kVectors][kWidth]) {
  constexpr int kRun = kVectors * kWidth;
#pragma unroll
  for (int first = 0; first < kRun; first += 2 * kVec8) {
    uint2 halves[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float vec8[kVec8];
#pragma unroll
      for (int i = 0; i < kVec8; ++i) {
        const int column = first + h * kVec8 + i;
        vec8[i] = values[column / kWidth][column % kWidth];
      }
      halves[h] = encode_fp8<__NV_E4M3>(vec8);
    }
    std::byte* codes = to + lane * kRun + first;
    __builtin_assume(__isGlobal(codes));
    *reinterpret_cast<uint4*>(codes) =
        make_uint4(halves[0].x, halves[0].y, halves[1].x, halves[1].y);
  }
}

// All lanes of a warp take part, whether their rows are written or not. Rows of one head of several tokens.
template <typename Config, typename Target, int kRows, typename Row>
__device__ inline void quantize_rows(const IndexRowParams& params, const Target& target,
                                     const TokenTarget (&tokens)[kRows], const RowOfToken& row,
                                     Row (&rows)[kRows]) {
  constexpr int kLanes = Config::kLanes;
  const float factor = Config::Steps::has_hadamard(params) ? params.hadamard_factor : 1.0f;
  float scales[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) scales[r] = largest(rows[r]);
  largest_of_lanes<kLanes>(scales);
  if constexpr (kRows == 1) {  // where nothing else is in its way
    if (tokens[0].position < 0) return;
  }
  if constexpr (Config::Steps::kScalesArePowers) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) scales[r] = power_of_two_scale(scales[r] * factor);
    divide_by_powers(rows, factor, scales);
  } else {
#pragma unroll
    for (int r = 0; r < kRows; ++r) scales[r] = row_scale(params.rounding, scales[r] * factor);
    divide(rows, factor, scales);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (tokens[r].position < 0) continue;
    std::byte* codes = codes_of(target, tokens[r], row.head);
    if constexpr (Config::kLanesHaveRuns) {
      store_run(codes, row.lane, rows[r]);
    } else {
      store_vectors<kLanes>(codes, row.lane, rows[r]);
    }
    if (row.lane == 0) {
      store_scale(target, tokens[r], row.head, scales[r] * gate_of(target, row.gate_bits));
    }
  }
}

}  // namespace quire::cuda::any::index_rows
