// SPDX-License-Identifier: Apache-2.0
// Any row format, any alignment, in double: a warp per row.
#include "cuda/any/rope/params.h"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/rows/rope_angles.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::rope {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// A row of numbers of any dtype: load(column) and store(column, value).
struct RopeQueryRow {
  const std::byte* q;
  std::byte* out;
  DType q_dtype;
  DType out_dtype;

  __device__ double load(int column) const { return load_number(q, q_dtype, column); }
  __device__ void store(int column, double value) const {
    store_number(out, out_dtype, column, value);
  }
};

struct KeyRow {
  std::byte* row;
  const RowFormat& format;

  __device__ double load(int column) const {
    const RowFormat::Column place = format.locate(column);
    const RowPart& part = format.parts[place.part];
    return load_row_number(row + part.offset_bytes, part.dtype, place.index);
  }
  __device__ void store(int column, double value) const {
    const RowFormat::Column place = format.locate(column);
    const RowPart& part = format.parts[place.part];
    store_row_number(row + part.offset_bytes, part.dtype, place.index, value);
  }
};

// A row's numbers after the norm, if it has one.
template <typename Row> class NormedRow {
 public:
  __device__ NormedRow(const RopeParams& params, const RopeNorm& norm, const Row& row)
      : params_(params), norm_(norm), row_(row) {
    if (norm.gamma == nullptr) return;
    double sum = 0.0;
    for (int i = threadIdx.x % kWarp; i < norm.columns; i += kWarp) {
      sum += row.load(i) * row.load(i);
    }
    factor_ = 1.0 / sqrt(warp_sum(sum) / norm.columns + params.epsilon);
  }

  __device__ bool is_normed(int column) const { return column < norm_.columns; }
  __device__ double load(int column) const {
    const double x = row_.load(column);
    if (!is_normed(column)) return x;
    return x * factor_ * (load_number(norm_.gamma, norm_.dtype, column) + params_.weight_offset);
  }

 private:
  const RopeParams& params_;
  const RopeNorm& norm_;
  const Row& row_;
  double factor_ = 1.0;
};

// The warp's lanes share the row. Columns outside the pairs are written where the norm changes
// them, or all of them.
template <typename Row>
__device__ void finish_row(const RopeParams& params, const NormedRow<Row>& normed, const Row& row,
                           int width, std::int64_t token, std::int64_t position, bool copies_rest) {
  const int lane = threadIdx.x % kWarp;
  const RopeAngles& angles = params.angles;
  for (int pair = lane; pair < params.rope_dim / 2; pair += kWarp) {
    const int a = params.interleaved ? params.first_column(width) + 2 * pair : pair;
    const int b = params.interleaved ? a + 1 : pair + params.rope_dim / 2;
    const std::int64_t angle =
        angle_row(angles, token, token_angles(angles, token, position), pair);
    const std::int64_t at = angle * angles.row_stride + 2 * pair * angles.column_stride;
    const double cosine = load_number(angles.freqs, angles.dtype, at);
    const double sine =
        load_number(angles.freqs, angles.dtype, at + angles.column_stride) * angles.sine_sign;
    const double first = normed.load(a);
    const double second = normed.load(b);
    row.store(a, first * cosine - second * sine);
    row.store(b, first * sine + second * cosine);
  }
  const int first = params.interleaved ? 0 : params.rope_dim;
  for (int i = lane; i < width - params.rope_dim; i += kWarp) {
    const int column = first + i;
    if (copies_rest || normed.is_normed(column)) row.store(column, normed.load(column));
  }
}

__device__ void finish_query(const RopeParams& params, std::int64_t token, std::int64_t position,
                             int head) {
  const RopeQueryRow row{
      .q = params.q + token * params.q_token_bytes + head * params.q_head_bytes,
      .out = params.out + token * params.out_token_bytes + head * params.out_head_bytes,
      .q_dtype = params.q_dtype,
      .out_dtype = params.out_dtype};
  const NormedRow<RopeQueryRow> normed(params, params.q_norm, row);
  finish_row(params, normed, row, params.head_dim, token, position, params.out != params.q);
}

__device__ void finish_key(const RopeParams& params, std::int64_t token, const TokenPlace& place,
                           int head) {
  std::byte* first = first_row(params.key, place);
  if (first == nullptr) return;
  const KeyRow row{.row = first + head * params.key.head_stride_bytes,
                   .format = params.key.row_format};
  const NormedRow<KeyRow> normed(params, params.key_norm, row);
  finish_row(params, normed, row, row.format.width(), token, place.position, false);
}

// Told how many CTAs to leave room for: without it the compiler stops at 48 registers and spills.
__global__ void __launch_bounds__(kThreads, 2)
    rotate_general(const __grid_constant__ RopeParams params) {
  const int rows = params.heads + params.key_heads;
  const std::int64_t index = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const std::int64_t token = index / rows;
  if (token >= params.tokens) return;
  const auto row = static_cast<int>(index - token * rows);
  const TokenPlace place =
      place_of_token(params.row_offsets, params.key.cache_lengths, params.key.batch, token);
  if (!place.exists()) return;
  if (row < params.heads) {
    finish_query(params, token, place.position, row);
  } else {
    finish_key(params, token, place, row - params.heads);
  }
}

}  // namespace

void launch_general(const RopeParams& params, cudaStream_t stream) {
  const std::int64_t rows = params.tokens * (params.heads + params.key_heads);
  launch(rotate_general,
         {.grid = dim3(num_blocks(rows * kWarp, kThreads)), .block = dim3(kThreads)}, stream,
         params);
}

}  // namespace quire::cuda::any::rope
