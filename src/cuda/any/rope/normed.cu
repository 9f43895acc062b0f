// SPDX-License-Identifier: Apache-2.0
// Norm and rotation in one pass: warps walk over chunks of a token's heads (normed_rotation.cuh).
#include <algorithm>

#include "cuda/any/rope/normed_rotation.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::rope {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

template <typename Config>
__global__ void __launch_bounds__(kThreads, Config::kBlocksPerSm)
    normalize_and_rotate(const __grid_constant__ RopeParams params,
                         const __grid_constant__ ChunkShare share, int lanes) {
  __shared__ BlockWeights weights;
  TokenWalk walk(params, share);
  weights.query.fill(params.q_norm, static_cast<float>(params.weight_offset));
  weights.key.fill(params.key_norm, static_cast<float>(params.weight_offset));
  __syncthreads();
  NormedRotation<Config> rotation(params, weights, lanes);
  while (walk.advance()) rotation.run(walk);
}

template <typename Config>
void launch_config(const RopeParams& params, int lanes, int sms, cudaStream_t stream) {
  const int per_chunk = NormedRotation<Config>::heads_per_chunk(lanes);
  const int chunks = (params.heads + params.key_heads + per_chunk - 1) / per_chunk;
  const std::int64_t blocks = std::min<std::int64_t>(
      Config::kBlocksPerSm * sms, num_blocks(params.tokens * chunks * kWarp, kThreads));
  launch(normalize_and_rotate<Config>,
         {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)}, stream, params,
         ChunkShare{.per_token = Divisor(static_cast<unsigned>(chunks)),
                    .chunks = static_cast<int>(params.tokens * chunks)},
         lanes);
}

template <DType kX, Pairing kPairing>
void launch_slots(const RopeParams& params, const NormedLayout& layout, int sms,
                  cudaStream_t stream) {
  if constexpr (bits(kX) == 16 && kPairing == Pairing::half_split) {
    // Fewer rows in flight and half as many warps again: better by a seventh, unless that makes more
    // chunks of heads that are not full.
    using Usual = NormedConfig<kX, kPairing, 2, 64, AngleTable::rows>;
    const int per_chunk = NormedRotation<Usual>::heads_per_chunk(layout.lanes);
    if (layout.slots <= 2 && (params.heads + params.key_heads) % per_chunk == 0 &&
        params.angles.stand_in_rows()) {
      return launch_config<Usual>(params, layout.lanes, sms, stream);
    }
  }
  if (layout.slots <= 2) {
    return launch_config<NormedConfig<kX, kPairing, 2>>(params, layout.lanes, sms, stream);
  }
  launch_config<NormedConfig<kX, kPairing, 4>>(params, layout.lanes, sms, stream);
}

template <DType kX>
void launch_for(const RopeParams& params, const NormedLayout& layout, int sms,
                cudaStream_t stream) {
  if (params.interleaved) {
    return launch_slots<kX, Pairing::interleaved>(params, layout, sms, stream);
  }
  launch_slots<kX, Pairing::half_split>(params, layout, sms, stream);
}

}  // namespace

void launch_normed(const RopeParams& params, const NormedLayout& layout, int sms,
                   cudaStream_t stream) {
  if (params.q_dtype == DType::bf16) return launch_for<DType::bf16>(params, layout, sms, stream);
  if (params.q_dtype == DType::f16) return launch_for<DType::f16>(params, layout, sms, stream);
  launch_for<DType::f32>(params, layout, sms, stream);
}

}  // namespace quire::cuda::any::rope
