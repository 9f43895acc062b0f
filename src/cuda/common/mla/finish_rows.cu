// SPDX-License-Identifier: Apache-2.0
// New latent rows finished, by one of two kernels. Statistics in double: the normalised number is rounded twice on its
// way to the cache, and an error before the first rounding can become a whole step after it.
#include "cuda/common/mla/finish_rows.h"

#include "cuda/any/store/launch.h"
#include "cuda/common/mla/finish_row.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/paging/row_reader.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/alignment.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/dependent_launch.cuh"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;

struct RawRow {
  const FinishRowsParams& params;
  std::int64_t token;
  RowPlace place;

  __device__ double operator()(int column) const {
    if (params.kv != nullptr) {
      return load_one(params.kv + token * params.kv_token_bytes, params.kv_dtype, column);
    }
    return place.exists() ? load_column(params.view, place, column) : 0.0f;
  }
};

__device__ double block_sum(double value) {
  __shared__ double parts[kThreads / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0.0;
  for (const double part : parts) sum += part;
  return sum;
}

// Any rows, to f32 in scratch: a block per new token.
__global__ void __launch_bounds__(kThreads)
    finish_new_rows(const __grid_constant__ FinishRowsParams params) {
  const KvLayerView& view = params.view;
  const LatentRowFinish& how = params.how;
  const std::int64_t token = blockIdx.x;
  const TokenPlace at = place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
  if (!at.exists()) return;
  const int width = view.row_format.width();
  const RawRow raw{params, token, place_row(view, at.sequence, at.position, 0)};
  double squares = 0.0;
  for (int column = threadIdx.x; column < how.latent; column += kThreads) {
    const double number = raw(column);  // once: each is a call, around which registers are saved
    squares += number * number;
  }
  const double factor = 1.0 / sqrt(block_sum(squares) / how.latent + how.epsilon);
  float* row = params.rows + token * width;
  for (int column = threadIdx.x; column < how.latent; column += kThreads) {
    const double normalised = round_number(how.gamma_dtype, raw(column) * factor);
    const double weight = load_number(how.gamma, how.gamma_dtype, column);
    row[column] = static_cast<float>(round_number(how.gamma_dtype, normalised * weight));
  }
  for (int pair = threadIdx.x; 2 * pair < width - how.latent; pair += kThreads) {
    const int column = how.latent + 2 * pair;
    const RotatedPair rotated =
        rotate_pair(how.angles, at.position, pair, raw(column), raw(column + 1));
    row[column] = static_cast<float>(rotated.a);
    row[column + 1] = static_cast<float>(rotated.b);
  }
}

// Plain rows where they stand: a warp per new token, eight columns a lane. A row is read twice, the second time from L1,
// and written once.
constexpr int kPlainBlocks =
    10;  // that fit a multiprocessor: with registers for more, f16 rows spill

__device__ int first_column() {
  return kVec8 * static_cast<int>(threadIdx.x % kWarp);
}

template <DType kDType>
__device__ double row_factor(const LatentRowFinish& how, const std::byte* source) {
  double squares = 0.0;
  for (int column = first_column(); column < how.latent; column += kWarp * kVec8) {
    float values[kVec8];
    Vec8<kDType>::decode(Vec8<kDType>::load(source + 2 * column), values);
    add_squares(values, squares);
  }
  return normal_factor(how, squares);
}

template <DType kDType>
__global__ void __launch_bounds__(kThreads, kPlainBlocks)
    finish_plain(const __grid_constant__ FinishRowsParams params) {
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
    Vec8<kDType>::decode(Vec8<kDType>::load(source + 2 * column), values);
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

LatentAngles latent_angles(const std::optional<TensorView>& freqs_cis) {
  if (!freqs_cis.has_value()) return {};
  return {.freqs = freqs_cis->as<const std::byte>(),
          .dtype = freqs_cis->dtype,
          .row_stride = freqs_cis->strides[0],
          .max_pos = freqs_cis->shape[0]};
}

FinishRowsParams finish_params(const NewLatentRows& rows) {
  FinishRowsParams params{
      .view = rows.cache.key(rows.layer),
      .row_offsets = rows.row_offsets.as<const std::uint32_t>(),
      .tokens = rows.tokens,
      .how = {.angles = latent_angles(rows.freqs_cis),
              .gamma = rows.kv_norm_gamma->as<const std::byte>(),
              .gamma_dtype = rows.kv_norm_gamma->dtype,
              .epsilon = rows.epsilon,
              .latent = static_cast<std::int32_t>(rows.kv_norm_gamma->shape[0])}};
  if (rows.kv.has_value()) {
    params.kv = rows.kv->as<const std::byte>();
    params.kv_dtype = rows.kv->dtype;
    params.kv_token_bytes = bytes_for(rows.kv->dtype, rows.kv->strides[0]);
  }
  return params;
}

void finish_rows(const NewLatentRows& rows, float* scratch, const Context& context) {
  if (!rows.freqs_cis.has_value()) return;
  FinishRowsParams params = finish_params(rows);
  params.rows = scratch;
  launch(finish_new_rows, {.grid = dim3(num_blocks(params.tokens, 1)), .block = dim3(kThreads)},
         static_cast<cudaStream_t>(context.stream), params);
  any::store::store({.x = TensorView::contiguous(
                         scratch, DType::f32, {rows.tokens, 1, params.view.width()}, rows.device),
                     .row_offsets = rows.row_offsets,
                     .cache = rows.cache,
                     .layer = rows.layer,
                     .side = KvSide::key},
                    context);
}

bool is_plain_layer(const KvLayerView& view) {
  const RowPart& part = view.row_format.parts[0];
  const bool is_plain = view.row_format.is_uniform() && part.scale_source == ScaleSource::none &&
                        (part.dtype == DType::bf16 || part.dtype == DType::f16);
  return is_plain && view.width() % kVectorColumns == 0 && part.offset_bytes == 0 &&
         are_aligned(kVectorBytes, view.data, view.token_stride_bytes, view.page_stride_bytes);
}

bool are_plain_rows(const NewLatentRows& rows) {
  const KvLayerView view = rows.cache.key(rows.layer);
  if (!is_plain_layer(view) || rows.kv_norm_gamma->shape[0] % kVectorColumns != 0) return false;
  return !rows.kv.has_value() ||
         (rows.kv->dtype == view.row_format.parts[0].dtype &&
          are_aligned(kVectorBytes, rows.kv->data, bytes_for(rows.kv->dtype, rows.kv->strides[0])));
}

void finish_latent_rows(const NewLatentRows& rows, float* scratch, const Context& context) {
  if (!rows.freqs_cis.has_value() || !are_plain_rows(rows)) {
    return finish_rows(rows, scratch, context);
  }
  const FinishRowsParams params = finish_params(rows);
  const bool is_bf16 = params.view.row_format.parts[0].dtype == DType::bf16;
  launch(is_bf16 ? finish_plain<DType::bf16> : finish_plain<DType::f16>,
         {.grid = dim3(num_blocks(params.tokens * kWarp, kThreads)), .block = dim3(kThreads)},
         static_cast<cudaStream_t>(context.stream), params);
}

}  // namespace quire::cuda
