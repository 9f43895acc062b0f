// SPDX-License-Identifier: Apache-2.0
// A warp per new token, eight columns a lane: its row is read twice, the second time from L1, and
// written once.
#include "cuda/common/mla/finish_row.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/dependent_launch.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks = 10;  // that fit a multiprocessor: with registers for more, f16 rows spill
constexpr int kWarp = 32;

__device__ int first_column() {
  return kVec8 * static_cast<int>(threadIdx.x % kWarp);
}

template <DType kDType>
__device__ double row_factor(const LatentRowFinish& how, const std::byte* source) {
  double squares = 0.0;
  for (int column = first_column(); column < how.latent; column += kWarp * kVec8) {
    float values[kVec8];
    Eight<kDType>::decode(Eight<kDType>::load(source + 2 * column), values);
    add_squares(values, squares);
  }
  return normal_factor(how, squares);
}

template <DType kDType>
__global__ void __launch_bounds__(kThreads, kBlocks)
    finish_plain(const __grid_constant__ FinishPlainParams params) {
  let_next_kernel_start();
  const std::int64_t token = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (token >= params.tokens) return;
  const KvLayerView& view = params.view;
  const TokenPlace place =
      place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
  if (!place.exists()) return;
  std::byte* row = row_of(view, place.sequence, place.position, 0);
  if (row == nullptr) return;
  const LatentRowFinish& how = params.how;
  const std::byte* source = params.kv == nullptr ? row : params.kv + token * params.kv_token_bytes;
  const double factor = row_factor<kDType>(how, source);
  const int width = view.row_format.width();
  for (int column = first_column(); column < width; column += kWarp * kVec8) {
    float values[kVec8];
    float by[kVec8];
    Eight<kDType>::decode(Eight<kDType>::load(source + 2 * column), values);
    if (column < how.latent) {
      load_each(how.gamma, how.gamma_dtype, column, by);
      normalise(how, by, factor, values);
    } else {
      load_angles(how.angles, place.position, column - how.latent, by);
      rotate(by, values);
    }
    store_vec8<kDType>(row + 2 * column, values);
  }
}

}  // namespace

void launch_finish_plain(const FinishPlainParams& params, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(num_blocks(params.tokens * kWarp, kThreads)),
                          .block = dim3(kThreads)};
  const bool is_bf16 = params.view.row_format.parts[0].dtype == DType::bf16;
  launch(is_bf16 ? finish_plain<DType::bf16> : finish_plain<DType::f16>, shape, stream, params);
}

}  // namespace quire::cuda
