// SPDX-License-Identifier: Apache-2.0
// Rows of caches that hold q's dtype as it is: a warp per buffer row, eight columns a lane. A row of
// a new token is finished on its way, in the cache too, which saves a kernel before this one.
#include <algorithm>

#include "cuda/any/mla_prefill/chunk_rows.cuh"
#include "cuda/common/mla/finish_row.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_prefill/latent_group.cuh"
#include "cuda/sm90/mla_prefill/params.h"
#include "cuda/sm90/mla_prefill/rotate_queries.cuh"
#include "cuda/sm90/mla_prefill/write_spans.cuh"

namespace quire::cuda::sm90::mla_prefill {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kSpan = kWarp * kVec8;  // columns of a warp
constexpr int kSpans = kMostPlainLatents / kSpan;

// One row, as a lane of its warp sees it.
template <DType kDType> class PlainRow {
 public:
  using Numbers = float[kVec8];

  // All that memory is asked for is on its way before the first of it is used.
  __device__ PlainRow(const GatherPlainParams& params, const TokenPlace& place)
      : params_(params), row_(first_row(params.gather.cache.view, place)) {
    if (row_ == nullptr) return;
    const std::byte* source = find_source(place);
#pragma unroll
    for (int k = 0; k < kSpans; ++k) {
      if (column(k) < params.gather.latent) raw_[k] = Eight<kDType>::load(source + 2 * column(k));
    }
    if (has_rope()) {
      rope_ = Eight<kDType>::load(source + 2 * (params.gather.latent + column(0)));
      if (is_new_) load_angles(params.new_rows.angles, place.position, column(0), angles_);
    }
  }

  __device__ void finish() {
    if (!is_new_) return;
    double squares = 0.0;
#pragma unroll
    for (int k = 0; k < kSpans; ++k) {
      Numbers values;
      Eight<kDType>::decode(raw_[k], values);
      add_squares(values, squares);
    }
    const double factor = normal_factor(params_.new_rows, squares);
#pragma unroll
    for (int k = 0; k < kSpans; ++k) {
      if (column(k) >= params_.gather.latent) continue;
      Numbers values;
      Numbers gamma;
      Eight<kDType>::decode(raw_[k], values);
      load_each(params_.new_rows.gamma, params_.new_rows.gamma_dtype, column(k), gamma);
      normalise(params_.new_rows, gamma, factor, values);
      raw_[k] = keep(column(k), values);
    }
    if (has_rope()) {
      Numbers values;
      Eight<kDType>::decode(rope_, values);
      rotate(angles_, values);
      rope_ = keep(params_.gather.latent + column(0), values);
    }
  }

  __device__ void store(std::int64_t row) const {
#pragma unroll
    for (int k = 0; k < kSpans; ++k) {
      if (k * kSpan < params_.gather.latent) store_latents(row, k);
    }
    if (!has_rope()) return;
    const std::int64_t at = row * params_.gather.rope + column(0);
    if (params_.gather.rope_dtype == DType::fp8_e4m3) {
      Numbers values;
      Eight<kDType>::decode(rope_, values);
      store_vec8(params_.gather.rope_rows + at, DType::fp8_e4m3, values);
    } else {
      *reinterpret_cast<uint4*>(params_.gather.rope_rows + 2 * at) = rope_;
    }
  }

 private:
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % kWarp);
  }
  __device__ static int column(int k) {
    return k * kSpan + kVec8 * lane();
  }
  __device__ bool has_rope() const {
    return column(0) < params_.gather.rope;
  }

  // Of a new token the raw row, which may stand elsewhere.
  __device__ const std::byte* find_source(const TokenPlace& place) {
    if (params_.new_rows.gamma == nullptr) return row_;
    const std::int64_t index =
        place.position - std::int64_t{params_.gather.cache.view.cache_lengths[place.sequence]};
    is_new_ = index >= 0;
    if (!is_new_ || params_.kv == nullptr) return row_;
    return params_.kv +
           (params_.gather.row_offsets[place.sequence] + index) * params_.kv_token_bytes;
  }
  // Rounded, and in the cache.
  __device__ uint4 keep(int column, const Numbers& values) {
    const uint4 rounded = Eight<kDType>::encode(values);
    *reinterpret_cast<uint4*>(row_ + 2 * column) = rounded;
    return rounded;
  }
  // By all lanes: those behind the last column help to find scales.
  __device__ void store_latents(std::int64_t row, int k) const {
    const std::int64_t at = row * params_.gather.latent + column(k);
    const bool is_there = column(k) < params_.gather.latent;
    if (params_.gather.scales == nullptr) {
      if (is_there) *reinterpret_cast<uint4*>(params_.gather.latents + 2 * at) = raw_[k];
      return;
    }
    Numbers values;
    Eight<kDType>::decode(raw_[k], values);
    const float scale = divide_group(values);
    if (!is_there) return;
    store_vec8(params_.gather.latents + at, DType::fp8_e4m3, values);
    if (lane() % kLatentGroupLanes == 0) {
      params_.gather.scales[row * params_.gather.scale_stride + column(k) / kFp8Group] = scale;
    }
  }

  const GatherPlainParams& params_;
  std::byte* row_;  // in the cache; null: there is none, and the numbers are zeros
  bool is_new_ = false;
  uint4 raw_[kSpans]{};
  uint4 rope_{};
  float angles_[kVec8];
};

// One of the blocks that have rows, or the one behind them, which writes the spans.
template <DType kDType>
__device__ void gather_rows_of(const GatherPlainParams& params, int block, int blocks) {
  const GatherRowsParams& gather = params.gather;
  const bool has_rows = block + 1 < blocks;
  const std::int64_t row = (std::int64_t{block} * kThreads + threadIdx.x) / kWarp;
  const bool is_row = has_rows && row < min(gather.rows, any::mla_prefill::chunk_length(
                                                             gather.chunks, gather.chunk));
  // Where it stands follows from the call's arguments: found while the kernel before still runs.
  TokenPlace place{};
  if (is_row) {
    place = any::mla_prefill::token_of_row(gather.cache.view, gather.row_offsets, gather.chunks,
                                           gather.chunk, row);
  }
  if (!has_rows) write_spans(gather.spans, static_cast<int>(threadIdx.x), kThreads);
  cudaGridDependencySynchronize();
  if (!is_row) return;
  PlainRow<kDType> numbers(params, place);
  numbers.finish();
  numbers.store(row);
}

// Blocks that rotate come first: they have most to do.
template <DType kDType>
__global__ void __launch_bounds__(kThreads, 4)
    gather_plain(const __grid_constant__ GatherPlainParams params) {
  cudaTriggerProgrammaticLaunchCompletion();
  const auto block = static_cast<int>(blockIdx.x);
  if (block < params.rotating_blocks) {
    constexpr int kWarps = kThreads / kWarp;
    QueryRotator<kDType>(params.rotation, block * kWarps + static_cast<int>(threadIdx.x) / kWarp,
                         params.rotating_blocks * kWarps)
        .run();
    return;
  }
  gather_rows_of<kDType>(params, block - params.rotating_blocks,
                         static_cast<int>(gridDim.x) - params.rotating_blocks);
}

}  // namespace

void launch_gather_plain(const GatherPlainParams& params, cudaStream_t stream) {
  const unsigned blocks =
      num_blocks(std::max<std::int64_t>(params.gather.rows, 1) * kWarp, kThreads);
  const bool is_bf16 = params.gather.cache.view.row_format.parts[0].dtype == DType::bf16;
  launch(is_bf16 ? gather_plain<DType::bf16> : gather_plain<DType::f16>,
         {.grid = dim3(static_cast<unsigned>(params.rotating_blocks) + blocks + 1),
          .block = dim3(kThreads),
          .overlaps_previous = params.gather.follows_kernel},
         stream, params);
}

}  // namespace quire::cuda::sm90::mla_prefill
