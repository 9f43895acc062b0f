// SPDX-License-Identifier: Apache-2.0
// How the gathering warpgroup brings a tile's rows into shared memory: halves of the latent columns
// (four slabs each), and the rope slab. 16 bytes of a slab's row r stand at piece (p ^ r % 8).
#pragma once

#include "cuda/hopper/flash_attention/decode/async_copy.cuh"
#include "cuda/hopper/sparse_mla/decode_rows.cuh"
#include "cuda/hopper/sparse_mla/params.h"
#include "cuda/hopper/sparse_mla/shared.cuh"
#include "cuda/hopper/tile/opaque.cuh"

namespace quire::cuda::hopper {

__device__ inline int piece_offset(int row, int piece) {
  return row * kRowBytes + ((piece ^ (row % 8)) * 16);
}

// Where a tile's rows come from.
struct TileSource {
  const RowTable& table;
  int slot;
  const GatherStream& stream;
};

template <RowKind kKind> class RowFill;

// A warp copies 512 bytes of a row at a time; nothing passes through registers.
template <> class RowFill<RowKind::bf16> {
 public:
  __device__ RowFill() : thread_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup)) {}

  // Nothing can be taken before its place is free.
  // The rows' addresses, so that the copies follow each other as soon as there is room.
  __device__ void fetch(const TileSource& from) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) rows_[i] = from.table.rows[from.slot][4 * i + thread_ / 32];
  }

  template <int kHalf> __device__ void fill(std::byte* slabs, const TileSource&) {
    const int thread = opaque(thread_);
    const int lane = thread % 32;
    const int line = thread / 32;
    const int column = kHalf * SparseConfig::kHalfColumns * 2 + lane * 16;
    std::byte* slab = slabs + lane / 8 * kSlabBytes;
    std::byte* even = slab + piece_offset(line, lane % 8);  // rows 8j + line
    std::byte* odd = slab + piece_offset(line + 4, lane % 8);
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      copy_async((i % 2 == 0 ? even : odd) + i / 2 * 8 * kRowBytes, rows_[i] + column,
                 rows_[i] != nullptr, L2Policy::normal);
    }
  }
  __device__ void fill_rope(std::byte* slab, const TileSource& now) {
    const int thread = opaque(thread_);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * i + thread / 8;
      const std::byte* source = now.table.rows[now.slot][row];
      copy_async(slab + piece_offset(row, thread % 8),
                 source + SparseConfig::kLatent * 2 + thread % 8 * 16, source != nullptr,
                 L2Policy::normal);
    }
  }
  __device__ void arrive(FullBarrier& full) {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
  }

 private:
  static constexpr int kPasses = SparseConfig::kKeys / 4;

  int thread_;
  const std::byte* rows_[kPasses];  // 4i + warp
};

// The next tile's bytes wait in registers.
template <> class RowFill<RowKind::fp8> {
 public:
  __device__ RowFill() : thread_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup)) {}

  __device__ void fetch(const TileSource& from) {
    const int thread = opaque(thread_);
    fetch_latent(from, thread);
    // A row's rope is 8 pieces of bf16, or 4 of e4m3: then there are half as many.
    const int lanes = from.stream.rope_is_fp8 ? 4 : 8;
    const int column = from.stream.rope_offset_bytes + thread % lanes * 16;
    const int step = SparseConfig::kWarpgroup / lanes;
    const std::byte* const* rows = from.table.rows[from.slot];
#pragma unroll
    for (int i = 0; i < kRopePasses; ++i) {
      const int row = i * step + thread / lanes;
      rope_[i] = load_row_bytes(row < SparseConfig::kKeys ? rows[row] : nullptr, column);
    }
  }
  template <int kHalf> __device__ void fill(std::byte* slabs, const TileSource& now) {
    const Place place(opaque(thread_));
    const int first = place.piece % 4 * 2;
    std::byte* slab = slabs + place.piece / 4 * kSlabBytes;
    std::byte* low = slab + piece_offset(place.line, first);
    std::byte* high = slab + piece_offset(place.line, first + 1);
    const auto* scales = reinterpret_cast<const float*>(&now.table.scales[now.slot][place.line]) +
                         2 * kHalf + place.piece / 8;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const float scale = scales[i * kPassRows * 4];
      const uint4& raw = raw_[kHalf][i];
      *reinterpret_cast<uint4*>(low + i * kPassRows * kRowBytes) =
          decode_eight(raw.x, raw.y, scale);
      *reinterpret_cast<uint4*>(high + i * kPassRows * kRowBytes) =
          decode_eight(raw.z, raw.w, scale);
    }
  }

  __device__ void fill_rope(std::byte* slab, const TileSource& now) {
    const float* scales = now.table.rope_scales[now.slot];
    const int thread = opaque(thread_);
    if (now.stream.rope_is_fp8) {
#pragma unroll
      for (int i = 0; i < kRopePasses / 2; ++i) {
        const int row = 32 * i + thread / 4;
        store_piece(slab, row, thread % 4 * 2, decode_eight(rope_[i].x, rope_[i].y, scales[row]));
        store_piece(slab, row, thread % 4 * 2 + 1,
                    decode_eight(rope_[i].z, rope_[i].w, scales[row]));
      }
      return;
    }
    const bool is_scaled = now.stream.rope_is_scaled;
#pragma unroll
    for (int i = 0; i < kRopePasses; ++i) {
      const int row = 16 * i + thread / 8;
      store_piece(slab, row, thread % 8, is_scaled ? scale_eight(rope_[i], scales[row]) : rope_[i]);
    }
  }
  __device__ void arrive(FullBarrier& full) {
    cutlass::arch::fence_view_async_shared();
    full.arrive();
  }

 private:
  static constexpr int kPassRows = 8;
  static constexpr int kPasses = SparseConfig::kKeys / kPassRows;
  static constexpr int kRopePasses = 4;  // of sixteen, or two of 32

  __device__ static void store_piece(std::byte* slab, int row, int piece, const uint4& words) {
    *reinterpret_cast<uint4*>(slab + piece_offset(row, piece)) = words;
  }

  __device__ void fetch_latent(const TileSource& from, int thread) {
    const Place place(thread);
    const std::byte* const* rows = &from.table.rows[from.slot][place.line];
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const std::byte* row = rows[i * kPassRows];
      raw_[0][i] = load_row_bytes(row, place.piece * 16);
      raw_[1][i] = load_row_bytes(row, place.piece * 16 + SparseConfig::kHalfColumns);
    }
  }

  // Where a thread stands among 8 rows of 16 pieces. Eight lanes that store together have four pieces
  // of one row and the same four of the next: with the swizzle, no two in one bank.
  struct Place {
    int line;
    int piece;

    __device__ explicit Place(int thread)
        : line(thread / 32 * 2 + thread / 4 % 2), piece(thread % 32 / 8 * 4 + thread % 4) {}
  };

  int thread_;
  uint4 raw_[2][kPasses];
  uint4 rope_[kRopePasses];
};

}  // namespace quire::cuda::hopper
