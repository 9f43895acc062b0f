// SPDX-License-Identifier: Apache-2.0
// A thread's own ring of codes in shared memory: asynchronous 16-byte copies, in whole lines for a
// warp. No barrier: a thread waits for its own copies.
#pragma once

#include "cuda/hopper/fused_qkv_matmul/int4/params.h"
#include "cuda/hopper/fused_qkv_matmul/int4/shared.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

// Steps k_group, k_group + k_groups, … of a panel.
template <Int4Config kConfig> struct CodeRing {
  // Of this thread, as a shared-memory address. Written so that no part of it is the same in a warp:
  // nvcc 13.0 puts such a part into a uniform register, and a copy with a hint is then an illegal
  // instruction.
  unsigned place;
  unsigned end;
  const std::byte* next;  // to be fetched, of this thread
  int steps_left;
  std::uint64_t hint;

  __device__ CodeRing(const Int4Params& params, const void* memory, int panel, int k_group)
      : place(static_cast<unsigned>(__cvta_generic_to_shared(memory)) + threadIdx.x % 128 * 16),
        end(place + kConfig.ahead * kStepCodeBytes),
        next(params.weight + params.order.code_offset(panel, k_group) + threadIdx.x % 128 * 16),
        steps_left((params.order.steps - k_group + kConfig.k_groups - 1) / kConfig.k_groups),
        hint(static_cast<std::uint64_t>(params.weight_is_read_once ? L2Hint::EVICT_FIRST
                                                                   : L2Hint::EVICT_NORMAL)) {
    // A loop, as few instructions as can be: a cold start fetches them from far.
#pragma unroll 1
    for (int i = 0; i < kConfig.ahead; ++i) refill();
  }

  // The codes of the next step, both units.
  __device__ void take(uint4 (&codes)[2]) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kConfig.ahead - 1) : "memory");
    load(codes[0], place);
    load(codes[1], place + kUnitBytes);
  }
  // The codes that take() gave have been used: their place is filled again. Groups are counted, so
  // one without copies is committed behind the end.
  __device__ void refill() {
    static_assert(kUnitBytes == 2048);
    asm volatile(
        "{\n"
        ".reg .pred is_step;\n"
        "setp.gt.s32 is_step, %3, 0;\n"
        "@is_step cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;\n"
        "@is_step cp.async.cg.shared.global.L2::cache_hint [%0 + 2048], [%1 + 2048], 16, %2;\n"
        "cp.async.commit_group;\n"
        "}" ::"r"(place),
        "l"(next), "l"(hint), "r"(steps_left)
        : "memory");
    next += kConfig.k_groups * kStepCodeBytes;
    --steps_left;
    place += kStepCodeBytes;
    if (place == end) place = end - kConfig.ahead * kStepCodeBytes;
  }

 private:
  __device__ static void load(uint4& value, unsigned from) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(from));
  }
};

}  // namespace quire::cuda::hopper
