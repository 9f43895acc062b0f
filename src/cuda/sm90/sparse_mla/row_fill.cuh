// SPDX-License-Identifier: Apache-2.0
// How a gathering warp brings its rows of a tile into shared memory. 16 bytes of a swizzle column's row r stand
// at chunk (p ^ r % 8).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cute/arch/copy_sm80.hpp>

#include <cstddef>
#include <cstdint>

#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/sparse_mla/row_finder.cuh"
#include "cuda/sm90/sparse_mla/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

// One definition for each kind. begin(run), then turn(index, meanwhile) for every index from kFirstTurn to
// the run's last tile, which fills tile `index` (from 0 on) and sends for what later ones need. `meanwhile`
// is called where there is time: before the right half, which may have to wait for its place.
template <typename Variant, RowKind kKind = Variant::kConfig.rows,
          int kBlocks = Variant::kConfig.blocks, RowShape kShape = Variant::kConfig.shape>
class RowFill;

__device__ inline const std::byte* row_of_lane(const std::byte* row, int lane) {
  return reinterpret_cast<const std::byte*>(
      __shfl_sync(0xffffffff, reinterpret_cast<std::uint64_t>(row), lane));
}

// Where chunk `chunk` of a warp's row `row` stands in that warp's part of a swizzle column.
__device__ inline int chunk_offset(int row, int chunk) {
  return row * kRowBytes + ((chunk ^ (row % 8)) * 16);
}

// Copies of a few bytes from global to shared memory, in groups that their thread waits for.

// 16 bytes; `is_there` false: zeros, and `source` is not read. No wish for more of the line than asked
// for: rows of 656 bytes begin anywhere in one.
__device__ inline void copy_chunk(void* target, const std::byte* source, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 16 : 0)
               : "memory");
}
// 4 bytes, or 8.
template <int kBytes = 4>
__device__ inline void copy_word(void* target, const void* source, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(source),
               "n"(kBytes), "r"(is_there ? kBytes : 0)
               : "memory");
}
// What this thread has sent for since the last call is a group.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all but the newest kLeft groups are there.
template <int kLeft> __device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// e4m3 bytes of a row, scaled, as bf16: one rounding, of the product in fp32. (A scale
// rounded to bf16 first would halve the multiplications and double the error.)

// Two e4m3 numbers, the low half of `codes`.
__device__ inline std::uint32_t decode_pair(std::uint32_t codes, float scale) {
  const auto pair = static_cast<__nv_fp8x2_storage_t>(codes & 0xffff);
  const float2 values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
  return pack_pair<DType::bf16>(values.x * scale, values.y * scale);
}

// Eight e4m3 numbers.
__device__ inline uint4 decode_vec8(std::uint32_t low, std::uint32_t high, float scale) {
  return {decode_pair(low, scale), decode_pair(low >> 16, scale), decode_pair(high, scale),
          decode_pair(high >> 16, scale)};
}

// An e8m0 scale as two bf16 numbers. A power of two loses nothing in bf16, and by it neither do e4m3 numbers.
__device__ inline std::uint32_t bf16_pair_of_e8m0(std::uint32_t code) {
  const std::uint32_t exponents = code * 0x00800080u;
  // 2^-127 is a subnormal, and the highest code NaN: both have the highest bit of the significand.
  return ((code + 1) & 0xffu) <= 1 ? exponents | 0x00400040u : exponents;
}

// Eight e4m3 numbers times bf16_pair_of_e8m0().
__device__ inline std::uint32_t decode_pair_by_power(std::uint32_t codes, std::uint32_t scale) {
  const std::uint32_t pair = decode_pair(codes, 1.0F);
  const __nv_bfloat162 scaled = __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair),
                                        reinterpret_cast<const __nv_bfloat162&>(scale));
  return reinterpret_cast<const std::uint32_t&>(scaled);
}
__device__ inline uint4 decode_vec8_by_power(std::uint32_t low, std::uint32_t high,
                                             std::uint32_t scale) {
  return {decode_pair_by_power(low, scale), decode_pair_by_power(low >> 16, scale),
          decode_pair_by_power(high, scale), decode_pair_by_power(high >> 16, scale)};
}

// bf16 rows: eight lanes have 128 bytes of a row, a warp four rows at a time; nothing passes through
// registers. A lane has the same rows of all swizzle columns, so that a copy is one instruction and nothing else.

template <typename Variant, RowShape kShape> class RowFill<Variant, RowKind::bf16, 1, kShape> {
 public:
  static constexpr int kFirstTurn = -2;

  __device__ explicit RowFill(SparseShared<Variant>& shared)
      : shared_(shared),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup / 32)) {}

  __device__ void begin(const TileRun& run) {
    finder_.begin(run, PagePlaces::of_rows(run.stream, run.sequence), kConfig.keys,
                  warp_ * kRows + lane_ % kRows);
    stride_ = run.is_backwards ? -kConfig.keys : kConfig.keys;
    if (run.is_backwards) finder_.skip((run.num_tiles - 1) * kConfig.keys);
  }

  template <typename Meanwhile> __device__ void turn(int index, const Meanwhile& meanwhile) {
    const std::byte* row = finder_.step(stride_);
    if (index < 0) return;
    const std::uint32_t found = __ballot_sync(0xffffffff, row != nullptr);
    const LaneRows rows = find_rows(row, found);
    const int stage = at_.half.stage;
    shared_.left_ring.wait_empty(at_.half);
    write_mask(found);
    fill<0, SparseConfig::kHalfSwizzleColumns>(rows, shared_.left[stage]);
    arrive(shared_.left_ring.full[stage]);
    if constexpr (kConfig.has_rope()) {
      shared_.rope_ring.wait_empty(at_.rope);
      fill<2 * SparseConfig::kHalfSwizzleColumns, 1>(rows, shared_.rope[at_.rope.stage]);
      arrive(shared_.rope_ring.full[at_.rope.stage]);
    }
    meanwhile();
    shared_.right_ring.wait_empty(at_.half);
    fill<SparseConfig::kHalfSwizzleColumns, SparseConfig::kHalfSwizzleColumns>(
        rows, shared_.right[stage]);
    arrive(shared_.right_ring.full[stage]);
    at_.advance();
  }

 private:
  static constexpr SparseConfig kConfig = Variant::kConfig;
  static constexpr int kRows = kConfig.warp_rows();
  static constexpr int kLaneRows = kRows / 4;  // that a lane has a part of

  // No hint what becomes of the lines in L2: it would be two instructions for each copy.
  using Copy = cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>;

  // Once this thread's copies are there.
  __device__ void arrive(FullBarrier& full) const {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
  }

  __device__ void write_mask(std::uint32_t found) {
    if (lane_ != 0) return;
    shared_.masks.parts[at_.half.stage][warp_] = static_cast<std::uint16_t>(found);
    shared_.left_ring.full[at_.half.stage].arrive();
  }

  // What a lane copies of its warp's rows: the same 16 bytes of every swizzle column of row 4i + lane / 8.
  struct LaneRows {
    const std::byte* from[kLaneRows];
    int to[kLaneRows];
    bool is_there[kLaneRows];
  };
  __device__ LaneRows find_rows(const std::byte* row, std::uint32_t found) const {
    const int lane = opaque(lane_);
    LaneRows rows;
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      const int own_row = 4 * i + lane / 8;
      rows.from[i] = row_of_lane(row, own_row) + lane % 8 * 16;
      rows.to[i] = warp_ * kRows * kRowBytes + chunk_offset(own_row, lane % 8);
      rows.is_there[i] = (found >> own_row & 1) != 0;
    }
    return rows;
  }

  template <int kFirst, int kSwizzleColumns>
  __device__ static void fill(const LaneRows& rows, std::byte* swizzle_columns) {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
#pragma unroll
      for (int swizzle_column = 0; swizzle_column < kSwizzleColumns; ++swizzle_column) {
        std::byte* to =
            swizzle_columns + rows.to[i] + swizzle_column * kConfig.swizzle_column_bytes();
        const std::byte* from = rows.from[i] + (kFirst + swizzle_column) * kRowBytes;
        Copy::copy(*reinterpret_cast<const cute::uint128_t*>(from),
                   *reinterpret_cast<cute::uint128_t*>(to), rows.is_there[i]);
      }
    }
  }

  SparseShared<Variant>& shared_;
  int lane_;
  int warp_;
  RowFinder finder_;
  int stride_ = 0;  // slots from a tile to the next
  TilePlace<Variant> at_;
};

}  // namespace quire::cuda::sm90::sparse_mla
