// SPDX-License-Identifier: Apache-2.0
// How a unit of 16 rows stands in shared memory, so that eight rows' pieces of 16 bytes are in different banks. Spaced
// out by boxes wider than the rows they would be too, but memory gives 4 % less then (289 against 279 µs for 1.2 GB that
// nobody uses).
#pragma once

#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/swap_ab/config.h"

namespace quire::cuda::sm90::mla_decode {

// Swizzle columns of 128 bytes, swizzle b128.
struct SwizzleColumnRows {
  static constexpr int kSwizzleColumnBytes = SwapAbConfig::kUnitKeys * 128;
  // Of piece `chunk` of a row.
  __device__ static int offset(int row, int chunk) {
    return chunk / 8 * kSwizzleColumnBytes + swizzle_column_offset(row, chunk);
  }
  // From the place of a piece, `chunks` along the row. Bits of the two must not meet: from one of the first pieces, in
  // steps of as many.
  __device__ static int further(int place, int chunks) {
    return (place ^ chunks % 8 * 16) + chunks / 8 * kSwizzleColumnBytes;
  }
};

// kRopeChunk: a row's first piece of rope columns.
template <SwapAbKind kKind> struct UnitRows;

template <> struct UnitRows<SwapAbKind::bf16> : SwizzleColumnRows {
  static constexpr int kColumnBytes = 2;
  static constexpr int kRopeChunk = 64;
};

template <> struct UnitRows<SwapAbKind::fp8> : SwizzleColumnRows {
  static constexpr int kColumnBytes = 1;
  static constexpr int kRopeChunk = 32;
  // Rope columns of e4m3, rows of 64 bytes, stand behind the swizzle columns of the others: swizzle b64.
  static constexpr int kTail = LatentConfig::kLatent / 128 * kSwizzleColumnBytes;
  __device__ static int tail(int row, int chunk) { return kTail + tail_offset(row, chunk); }
};

// An odd number of 16 bytes apart.
struct SpacedRows {
  static constexpr int kColumnBytes = 1;
  __device__ static int offset(int row, int chunk) {
    return row * SwapAbConfig::kFp8Pitch + chunk * 16;
  }
  __device__ static int further(int place, int chunks) { return place + chunks * 16; }
};

// As in memory.
template <> struct UnitRows<SwapAbKind::fp8_block> : SpacedRows {
  static constexpr int kScalesChunk = 32;  // f32 [4]
  static constexpr int kRopeChunk = 33;
};

// By boxes that are wider than the shorter ones: with many query rows memory is not the limit.
template <> struct UnitRows<SwapAbKind::fp8_spaced> : SpacedRows {};

}  // namespace quire::cuda::sm90::mla_decode
