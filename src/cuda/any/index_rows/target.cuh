// SPDX-License-Identifier: Apache-2.0
// Where the codes and the scale of a row go: the two ops differ in nothing else.
#pragma once

#include "cuda/any/index_rows/params.h"
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

// Queries: what a CTA knows of its tokens, found once for all their heads.

template <DType kXType, int kRowLanes, RowSteps kSteps = RowSteps::any> struct QueryRowConfig {
  using Steps = KnownSteps<kSteps>;
  static constexpr bool kLanesHaveRuns = false;
  static constexpr DType kX = kXType;
  static constexpr int kLanes = kRowLanes;
  static constexpr int kThreads = 128;
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kMostTokens = kGroups + 16;             // of a block
  static constexpr int kMinBlocks = kX == DType::f32 ? 4 : 5;  // of a multiprocessor
};

// The tokens of a block. Angles stand by the piece of four, then by the lane: neighbours read neighbours.
template <typename Config> struct QueryTokens {
  static constexpr int kPieces = kTurnedVectors * 2;  // of a lane
  static_assert(Config::kMostTokens <= Config::kThreads);

  TokenTarget targets[Config::kMostTokens];
  float4 angles[Config::kMostTokens][kPieces][Config::kLanes];

  // A lane for each of `count` tokens.
  __device__ void find(const IndexRowParams& params, const QueryTarget& target, std::int64_t first,
                       int count) {
    if (static_cast<int>(threadIdx.x / 32 * 32) >= count) return;
    const TokenFinder finder(params.row_offsets, params.cache_lengths, params.batch);
    const auto t = static_cast<int>(threadIdx.x);
    const TokenPlace place = finder.find(first + t);
    if (t < count) targets[t] = locate(target, place, first + t);
  }

  // When the places are there.
  __device__ void load_angles(const IndexRowParams& params, int count) {
    if (!Config::Steps::turns(params)) return;
    for (int i = threadIdx.x; i < count * Config::kLanes; i += Config::kThreads) {
      const int token = i / Config::kLanes;
      const int lane = i % Config::kLanes;
      if (targets[token].position < 0) continue;
      RowAngles<kVec8> own;
      index_rows::load_angles<Config::kLanes>(params, lane, targets[token].position, own);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const float* four = &own[p / 2][p % 2 * 4];
        angles[token][p][lane] = make_float4(four[0], four[1], four[2], four[3]);
      }
    }
  }

  __device__ void angles_of(int token, int lane, RowAngles<kVec8>& own) const {
#pragma unroll
    for (int v = 0; v < kTurnedVectors; ++v) {
      Eight<DType::f32>::decode({angles[token][2 * v][lane], angles[token][2 * v + 1][lane]},
                                own[v]);
    }
  }
};

}  // namespace quire::cuda::any::index_rows
