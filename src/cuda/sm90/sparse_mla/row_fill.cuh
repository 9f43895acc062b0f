// SPDX-License-Identifier: Apache-2.0
// How a gathering warp brings its rows of a tile into shared memory. 16 bytes of a swizzle column's row r stand
// at piece (p ^ r % 8).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/sparse_mla/row_finder.cuh"
#include "cuda/sm90/sparse_mla/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

// One definition for each kind. begin(run), then turn(index, meanwhile) for every index from kFirstTurn to
// the run's last tile, which fills tile `index` (from 0 on) and sends for what later ones need. `meanwhile`
// is called where there is time: before the right half, which may have to wait for its place.
template <typename Variant, RowKind kKind = Variant::kConfig.rows,
          int kBlocks = Variant::kConfig.blocks>
class RowFill;

__device__ inline const std::byte* row_of_lane(const std::byte* row, int lane) {
  return reinterpret_cast<const std::byte*>(
      __shfl_sync(0xffffffff, reinterpret_cast<std::uint64_t>(row), lane));
}

// Where piece `piece` of a warp's row `row` stands in that warp's part of a swizzle column.
__device__ inline int piece_offset(int row, int piece) {
  return row * kRowBytes + ((piece ^ (row % 8)) * 16);
}

// Copies of a few bytes from global to shared memory, in groups that their thread waits for.

// 16 bytes; `is_there` false: zeros, and `source` is not read. No wish for more of the line than asked
// for: rows of 656 bytes begin anywhere in one.
__device__ inline void copy_piece(void* target, const std::byte* source, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 16 : 0)
               : "memory");
}
// 4 bytes.
__device__ inline void copy_word(void* target, const void* source, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(source),
               "r"(is_there ? 4 : 0)
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

}  // namespace quire::cuda::sm90::sparse_mla
