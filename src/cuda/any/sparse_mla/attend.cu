// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/sparse_mla/chosen_keys.cuh"
#include "cuda/common/general_attention/attend_output.cuh"
#include "cuda/common/general_attention/attend_tile.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::sparse_mla {
namespace {

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 2)
    attend_chosen(const __grid_constant__ SparseAttentionParams params) {
  using Keys = ChosenKeys<Config::kKeys>;
  __shared__ AttendShared<Config> shared;
  const KvLayerView& view = params.streams[0].rows.view;
  const std::int64_t token = blockIdx.x;
  const TokenPlace place =
      place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
  if (!place.exists()) return;
  const int first_head = static_cast<int>(blockIdx.y) * Config::kRows;
  Keys source(params, token, static_cast<int>(place.sequence), first_head,
              min(Config::kRows, params.heads - first_head));
  AttendTile<Config, Keys> attend(
      source, shared, static_cast<int>(blockIdx.z) * Config::kVectors * Config::kValueColumns);
  attend.run();
  store_rows(attend, source, params.output);
}

template <typename Config>
void launch_config(const SparseAttentionParams& params, cudaStream_t stream) {
  constexpr int kColumns = Config::kVectors * Config::kValueColumns;
  launch(attend_chosen<Config>,
         {.grid = dim3(num_blocks(params.tokens, 1), num_blocks(params.heads, Config::kRows),
                       num_blocks(params.output.width, kColumns)),
          .block = dim3(Config::kThreads)},
         stream, params);
}

}  // namespace

void launch_sparse_attention(const SparseAttentionParams& params, cudaStream_t stream) {
  if (params.heads <= 8) return launch_config<AttendConfig<8, 4>>(params, stream);
  launch_config<AttendConfig<32, 4>>(params, stream);
}

}  // namespace quire::cuda::any::sparse_mla
