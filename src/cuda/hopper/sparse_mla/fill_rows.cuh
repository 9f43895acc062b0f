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
  __device__ void fetch(const TileSource&) {}

  template <int kHalf>
  __device__ void fill(std::byte* slabs, const TileSource& now, const TileSource&) {
    const int lane = thread_ % 32;
    const int column = kHalf * SparseConfig::kHalfColumns * 2 + lane * 16;
    std::byte* slab = slabs + lane / 8 * kSlabBytes;
#pragma unroll 8
    for (int i = 0; i < SparseConfig::kKeys / 4; ++i) {
      const int row = 4 * i + thread_ / 32;
      const std::byte* source = now.table.rows[now.slot][row];
      copy_async<Reuse::soon>(slab + piece_offset(row, lane % 8), source + column,
                              source != nullptr);
    }
  }
  __device__ void fill_rope(std::byte* slab, const TileSource& now, const TileSource&) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * i + thread_ / 8;
      const std::byte* source = now.table.rows[now.slot][row];
      copy_async<Reuse::soon>(slab + piece_offset(row, thread_ % 8),
                              source + SparseConfig::kLatent * 2 + thread_ % 8 * 16,
                              source != nullptr);
    }
  }
  __device__ void arrive(FullBarrier& full) {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
  }

 private:
  int thread_;
};

// The next tile's bytes wait in registers while this tile's are decoded.
template <> class RowFill<RowKind::fp8> {
 public:
  __device__ RowFill() : thread_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup)) {}

  __device__ void fetch(const TileSource& from) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      raw_[0][i] = load_piece<0>(from, thread_, i);
      raw_[1][i] = load_piece<1>(from, thread_, i);
    }
#pragma unroll
    for (int i = 0; i < kRopePasses; ++i) rope_[i] = load_rope(from, thread_, i);
  }
  template <int kHalf>
  __device__ void fill(std::byte* slabs, const TileSource& now, const TileSource& next) {
    const int thread = opaque(thread_);
    const int piece = thread % 16;
    const int line = thread / 16;
    // Lanes of neighbouring slabs begin with different pieces: no two of eight in one bank.
    const int first = piece % 4 * 2 + piece / 4 % 2;
    std::byte* to = slabs + piece / 4 * kSlabBytes + piece_offset(line, first);
    std::byte* to_other = slabs + piece / 4 * kSlabBytes + piece_offset(line, first ^ 1);
    const auto* scales = reinterpret_cast<const float*>(&now.table.scales[now.slot][line]) +
                         2 * kHalf + piece / 8;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const float scale = scales[i * kPassRows * 4];
      uint4& raw = raw_[kHalf][i];
      uint4 low = decode_eight(raw.x, raw.y, scale);
      uint4 high = decode_eight(raw.z, raw.w, scale);
      raw = load_piece<kHalf>(next, thread, i);
      if (first % 2 == 1) swap(low, high);
      *reinterpret_cast<uint4*>(to + i * kPassRows * kRowBytes) = low;
      *reinterpret_cast<uint4*>(to_other + i * kPassRows * kRowBytes) = high;
    }
  }

  __device__ void fill_rope(std::byte* slab, const TileSource& now, const TileSource& next) {
    const float* scales = now.table.rope_scales[now.slot];
    const int thread = opaque(thread_);
#pragma unroll
    for (int i = 0; i < kRopePasses; ++i) {
      if (!now.stream.rope_is_fp8) {
        const int row = 16 * i + thread / 8;
        *reinterpret_cast<uint4*>(slab + piece_offset(row, thread % 8)) =
            scale_eight(rope_[i], scales[row]);
      } else if (i < kRopePasses / 2) {
        const int row = 32 * i + thread / 4;
        const int piece = thread % 4 * 2;
        *reinterpret_cast<uint4*>(slab + piece_offset(row, piece)) =
            decode_eight(rope_[i].x, rope_[i].y, scales[row]);
        *reinterpret_cast<uint4*>(slab + piece_offset(row, piece + 1)) =
            decode_eight(rope_[i].z, rope_[i].w, scales[row]);
      }
      rope_[i] = load_rope(next, thread, i);
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

  __device__ static void swap(uint4& a, uint4& b) {
    const uint4 kept = a;
    a = b;
    b = kept;
  }
  template <int kHalf>
  __device__ uint4 load_piece(const TileSource& from, int thread, int i) const {
    const std::byte* row = from.table.rows[from.slot][8 * i + thread / 16];
    const int column = kHalf * SparseConfig::kHalfColumns + thread % 16 * 16;
    return load_row_bytes(row == nullptr ? nullptr : row + column);
  }
  __device__ uint4 load_rope(const TileSource& from, int thread, int i) const {
    const bool is_fp8 = from.stream.rope_is_fp8;
    if (is_fp8 && i >= kRopePasses / 2) return {};
    const int line = is_fp8 ? 32 * i + thread / 4 : 16 * i + thread / 8;
    const int piece = is_fp8 ? thread % 4 : thread % 8;
    const std::byte* row = from.table.rows[from.slot][line];
    return load_row_bytes(row == nullptr ? nullptr
                                         : row + from.stream.rope_offset_bytes + piece * 16);
  }

  int thread_;
  uint4 raw_[2][kPasses];
  uint4 rope_[kRopePasses];
};

}  // namespace quire::cuda::hopper
