// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/general_attention/attend_output.cuh"
#include "cuda/common/general_attention/attend_tile.cuh"
#include "cuda/common/general_attention/paged_keys.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {
namespace {

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 2)
    attend_pages(const __grid_constant__ PagedAttentionParams params) {
  __shared__ AttendShared<Config> shared;
  const RowTile tile = find_row_tile(params.row_offsets, params.keys.view.batch, params.group,
                                     Config::kRows, blockIdx.x);
  if (tile.is_empty()) return;
  GeneralPagedKeys source(params, tile, static_cast<int>(blockIdx.y));
  AttendTile<Config, GeneralPagedKeys> attend(
      source, shared, static_cast<int>(blockIdx.z) * Config::kVectors * Config::kValueColumns);
  attend.run();
  store_rows(attend, source, params.output);
}

template <typename Config>
void launch_config(const PagedAttentionParams& params, cudaStream_t stream) {
  constexpr int kColumns = Config::kVectors * Config::kValueColumns;
  const std::int64_t tiles =
      num_row_tiles(params.tokens * params.group, params.keys.view.batch, Config::kRows);
  launch(attend_pages<Config>,
         {.grid = dim3(num_blocks(tiles, 1), static_cast<unsigned>(params.keys.view.num_heads),
                       num_blocks(params.output.width, kColumns)),
          .block = dim3(Config::kThreads)},
         stream, params);
}

}  // namespace

void launch_paged_attention(const PagedAttentionParams& params, cudaStream_t stream) {
  // Rows of a sequence on average: the lengths themselves are on the device.
  const bool is_short = params.tokens * params.group <= 8 * params.keys.view.batch;
  const bool has_one_block = params.output.width <= 128;
  if (is_short && has_one_block) return launch_config<AttendConfig<8, 1>>(params, stream);
  if (is_short) return launch_config<AttendConfig<8, 4>>(params, stream);
  if (has_one_block) return launch_config<AttendConfig<32, 1>>(params, stream);
  launch_config<AttendConfig<32, 4>>(params, stream);
}

}  // namespace quire::cuda
