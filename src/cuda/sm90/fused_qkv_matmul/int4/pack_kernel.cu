// SPDX-License-Identifier: Apache-2.0
// Once per weight, so written to be read: a thread per word of codes, then one per scale.
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/fused_qkv_matmul/int4/pack_kernel.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    pack_codes(const __grid_constant__ Int4Source from, const __grid_constant__ Int4Order order,
               std::byte* storage, std::int64_t words) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= words) return;
  reinterpret_cast<std::uint32_t*>(storage)[index] = packed_word(from, order, index);
}

__global__ void __launch_bounds__(kThreads)
    pack_sides(const __grid_constant__ Int4Source from, const __grid_constant__ Int4Order order,
               std::byte* storage, std::int64_t sides) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= sides) return;
  const int groups = order.steps * order.groups_per_step;
  pack_side(from, order, static_cast<int>(index / groups), static_cast<int>(index % groups),
            storage);
}

}  // namespace

void launch_pack(const Int4Source& from, const Int4Order& order, std::byte* storage,
                 cudaStream_t stream) {
  const std::int64_t words = order.code_offset(order.panels, 0) / 4;
  const std::int64_t sides =
      std::int64_t{order.panels} * kPanelRows * order.steps * order.groups_per_step;
  launch(pack_codes, {.grid = dim3(num_blocks(words, kThreads)), .block = dim3(kThreads)}, stream,
         from, order, storage, words);
  launch(pack_sides, {.grid = dim3(num_blocks(sides, kThreads)), .block = dim3(kThreads)}, stream,
         from, order, storage, sides);
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
