// SPDX-License-Identifier: Apache-2.0
// A warp per buffer row, eight columns a lane. Rows without a key are zeros: nobody sees them.

#include <algorithm>

#include "cuda/any/mla_prefill/chunk_rows.cuh"
#include "cuda/common/mla/finish_row.cuh"
#include "cuda/common/mla/fp8_group.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_prefill/params.h"
#include "cuda/sm90/mla_prefill/rotate_queries.cuh"

namespace quire::cuda::sm90::mla_prefill {

// What the host cannot know is decided here, a thread per chunk and sequence, chunks that the plan left
// unused above all: those are skipped, and the last one in use finishes the rows.

inline constexpr int kNoTiles = 0x3fffffff;  // a counter that starts here is past every tile

// A plan without keys has a chunk too, whose rows see nothing.
__device__ inline void link_chunk(const SpanParams& params, std::int64_t chunk) {
  bool is_used = false;
  bool has_earlier = false;
  bool has_later = false;
  for (std::int64_t other = 0; other < params.chunks.max_chunks; ++other) {
    if (any::mla_prefill::chunk_length(params.chunks, other) <= 0) continue;
    is_used = is_used || other == chunk;
    has_earlier = has_earlier || other < chunk;
    has_later = has_later || other > chunk;
  }
  if (chunk == 0 && !has_later) is_used = true;
  params.spans.links[chunk] =
      (has_earlier ? ChainedRows::kContinues : 0) | (has_later ? 0 : ChainedRows::kFinishes);
  for (std::int64_t group = 0; group < params.groups; ++group) {
    params.spans.next_tiles[group * params.chunks.max_chunks + chunk] = is_used ? 0 : kNoTiles;
  }
}

__device__ inline void write_span(const SpanParams& params, std::int64_t index) {
  const std::int64_t chunk = index / params.batch;
  if (chunk >= params.chunks.max_chunks) return;
  const std::int64_t sequence = index % params.batch;
  const std::int64_t num_keys = std::int64_t{params.cache_lengths[sequence]} +
                                params.row_offsets[sequence + 1] - params.row_offsets[sequence];
  const any::mla_prefill::ChunkKeys keys =
      any::mla_prefill::keys_of_chunk(params.chunks, chunk, sequence, num_keys);
  params.spans.first[index] = static_cast<std::uint32_t>(keys.first);
  params.spans.end[index] = static_cast<std::uint32_t>(keys.last);
  params.spans.buffer_rows[index] = static_cast<std::uint32_t>(keys.buffer_row);
  if (sequence == 0) link_chunk(params, chunk);
  if (index == 0) params.spans.zeros[0] = params.spans.zeros[1] = 0;
}

// By `threads` threads, of which this is one.
__device__ inline void write_spans(const SpanParams& params, std::int64_t thread,
                                   std::int64_t threads) {
  const std::int64_t spans = params.chunks.max_chunks * params.batch;
  for (std::int64_t index = thread; index < spans; index += threads) write_span(params, index);
}

// Latents as the projection with e4m3 weights multiplies them: groups of columns that share a scale,
// half a warp's.

inline constexpr int kLatentGroupLanes = kFp8Group / kVec8;

// Numbers of q's dtype become x / scale, to be rounded to e4m3; the scale is the same in all of the
// group's lanes.
__device__ inline float divide_group(float (&values)[kVec8]) {
  const GroupScale group = group_scale<kLatentGroupLanes>(DType::fp8_e4m3, values);
  // Not a plain division: rounded to f32 first, a quotient can come to rest halfway between two
  // codes and then go to the wrong one (one latent in a thousand).
  if (!group.vanishes) {
    Quotient(group.scale, group.amax).divide(values);
  } else {
#pragma unroll
    for (float& value : values) value *= 0.0F;
  }
  return group.scale;
}

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

__device__ void round_vec8(DType dtype, float (&values)[kVec8]) {
#pragma unroll
  for (float& value : values) {
    value = dtype == DType::bf16 ? Vec8<DType::bf16>::round(value) : Vec8<DType::f16>::round(value);
  }
}

// A code times its scale has more bits than f32. Cut off, with a last bit that remembers it, the
// rounding to q's dtype is the only one (rows/quotient.cuh); a second one moved a latent in some ten
// thousand, and e4m3 codes of theirs by a whole step.
__device__ float odd_product(float code, float scale) {
  const float lower = __fmul_rz(code, scale);
  const bool is_exact = fmaf(code, scale, -lower) == 0.0F;
  return is_exact ? lower : __int_as_float(__float_as_int(lower) | 1);
}

// Eight latents, to be rounded to q's dtype; zeros behind the last and without a page.
__device__ void load_latents(const GatherRowsParams& params, const RowPlace& place, int column,
                             float (&values)[kVec8]) {
  const KvLayerView& view = params.cache.view;
  const RowPart& part = view.row_format.parts[view.row_format.locate(0).part];
  if (part.scale_source == ScaleSource::none || !place.exists()) {
    return load_columns(params.cache, place, column, params.latent, values);
  }
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    values[i] = 0.0F;
    if (column + i >= params.latent) continue;
    const RowFormat::Column at = view.row_format.locate(column + i);
    const RowPart& own = view.row_format.parts[at.part];
    values[i] = odd_product(load_row_once(place.row + own.offset_bytes, own.dtype, at.index),
                            scale_of(view, own, place, column + i, at.index));
  }
}

__device__ void gather_latents(const GatherRowsParams& params, std::int64_t row,
                               const RowPlace& place, int lane) {
  for (int first = 0; first < params.latent; first += kWarp * kVec8) {
    const int column = first + kVec8 * lane;
    float values[kVec8];
    load_latents(params, place, column, values);
    const std::int64_t at = row * params.latent + column;
    if (params.scales == nullptr) {
      if (column < params.latent) store_vec8(params.latents + 2 * at, params.dtype, values);
      continue;
    }
    round_vec8(params.dtype, values);
    const float scale = divide_group(values);
    if (column >= params.latent) continue;
    store_vec8(params.latents + at, DType::fp8_e4m3, values);
    if (lane % kLatentGroupLanes == 0) {
      params.scales[row * params.scale_stride + column / kFp8Group] = scale;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    gather_rows(const __grid_constant__ GatherRowsParams params) {
  cudaTriggerProgrammaticLaunchCompletion();
  const std::int64_t row = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool is_row =
      row < min(params.rows, any::mla_prefill::chunk_length(params.chunks, params.chunk));
  // Where it stands follows from the call's arguments: found while the kernel before still runs.
  RowPlace place{};
  if (is_row) {
    place = any::mla_prefill::place_of_row(params.cache.view, params.row_offsets, params.chunks,
                                           params.chunk, row);
  }
  write_spans(params.spans, std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
              std::int64_t{gridDim.x} * kThreads);
  cudaGridDependencySynchronize();
  if (!is_row) return;
  gather_latents(params, row, place, lane);
  const int width = params.latent + params.rope;
  for (int column = kVec8 * lane; column < params.rope; column += kWarp * kVec8) {
    float values[kVec8];
    load_columns(params.cache, place, params.latent + column, width, values);
    const std::int64_t at = row * params.rope + column;
    store_vec8(params.rope_rows + (params.rope_dtype == DType::fp8_e4m3 ? at : 2 * at),
               params.rope_dtype, values);
  }
}

}  // namespace

void launch_gather_rows(const GatherRowsParams& params, cudaStream_t stream) {
  launch(gather_rows,
         {.grid = dim3(num_blocks(std::max<std::int64_t>(params.rows, 1) * kWarp, kThreads)),
          .block = dim3(kThreads),
          .overlaps_previous = params.follows_kernel},
         stream, params);
}

// Rows of caches that hold q's dtype as it is: a warp per buffer row, eight columns a lane. A row of
// a new token is finished on its way, in the cache too, which saves a kernel before this one.

namespace {

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
      if (column(k) < params.gather.latent) raw_[k] = Vec8<kDType>::load(source + 2 * column(k));
    }
    if (has_rope()) {
      rope_ = Vec8<kDType>::load(source + 2 * (params.gather.latent + column(0)));
      if (is_new_) load_angles(params.new_rows.angles, place.position, column(0), angles_);
    }
  }

  __device__ void finish() {
    if (!is_new_) return;
    double squares = 0.0;
#pragma unroll
    for (int k = 0; k < kSpans; ++k) {
      Numbers values;
      Vec8<kDType>::decode(raw_[k], values);
      add_squares(values, squares);
    }
    const double factor = normal_factor(params_.new_rows, squares);
#pragma unroll
    for (int k = 0; k < kSpans; ++k) {
      if (column(k) >= params_.gather.latent) continue;
      Numbers values;
      Numbers gamma;
      Vec8<kDType>::decode(raw_[k], values);
      load_each(params_.new_rows.gamma, params_.new_rows.gamma_dtype, column(k), gamma);
      normalise(params_.new_rows, gamma, factor, values);
      raw_[k] = keep(column(k), values);
    }
    if (has_rope()) {
      Numbers values;
      Vec8<kDType>::decode(rope_, values);
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
      Vec8<kDType>::decode(rope_, values);
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
    const uint4 rounded = Vec8<kDType>::encode(values);
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
    Vec8<kDType>::decode(raw_[k], values);
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
