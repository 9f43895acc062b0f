// SPDX-License-Identifier: Apache-2.0
// Any row format, any alignment, in double: a warp per row. And ready-made scales, a thread each.
#include "cuda/any/store/places.cuh"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::store {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kPlane = -1;

// The columns that share a scale: slot `index` of the plane, or of a part's own scales.
struct Granule {
  int part;  // kPlane: those of every part with scales in the plane
  int index;
  DType scale_dtype;
};

class GeneralRow {
 public:
  __device__ GeneralRow(const StoreParams& params, const std::byte* x, std::byte* row,
                        std::byte* plane)
      : params_(params), x_(x), row_(row), plane_(plane), lane_(threadIdx.x % kWarp) {}

  __device__ void store() const {
    const RowFormat& format = params_.view.row_format;
    const bool holds_codes = format.is_uniform() && params_.x_dtype == format.parts[0].dtype;
    for (int column = lane_; column < format.width(); column += kWarp) {
      const RowFormat::Column place = format.locate(column);
      const RowPart& part = format.parts[place.part];
      if (!holds_codes && part.scale_source != ScaleSource::none) continue;
      store_row_number(row_ + part.offset_bytes, part.dtype, place.index, value(column));
    }
    if (holds_codes) return;
    for (int p = 0; p < format.num_parts; ++p) {
      const RowPart& part = format.parts[p];
      if (part.scale_source != ScaleSource::in_row) continue;
      for (int i = 0; i * part.granularity < part.width; ++i) {
        quantize({p, i, part.scale_dtype});
      }
    }
    for (int slot = 0; slot < format.plane_slots(); ++slot) {
      quantize({kPlane, slot, params_.view.scales.dtype});
    }
  }

 private:
  __device__ double value(int column) const { return load_number(x_, params_.x_dtype, column); }

  __device__ bool belongs(const RowFormat::Column& place, int column,
                          const Granule& granule) const {
    const RowPart& part = params_.view.row_format.parts[place.part];
    if (granule.part != kPlane) {
      return place.part == granule.part && place.index / part.granularity == granule.index;
    }
    return part.scale_source == ScaleSource::plane && column / part.granularity == granule.index;
  }

  __device__ std::byte* scale_address(const Granule& granule) const {
    if (granule.part == kPlane) {
      const ScaleLayerView& scales = params_.view.scales;
      return plane_ == nullptr
                 ? nullptr
                 : plane_ + granule.index * scales.slot_stride * (bits(scales.dtype) / 8);
    }
    return row_ + params_.view.row_format.parts[granule.part].scale_offset_bytes +
           granule.index * (bits(granule.scale_dtype) / 8);
  }

  // scale = amax / max_finite of the 8-bit columns; 0 becomes 1 where wider ones share it.
  __device__ double dynamic_scale(const Granule& granule) const {
    double needed = 0.0;
    bool has_wide = false;
    const RowFormat& format = params_.view.row_format;
    for (int column = lane_; column < format.width(); column += kWarp) {
      const RowFormat::Column place = format.locate(column);
      if (!belongs(place, column, granule)) continue;
      const DType dtype = format.parts[place.part].dtype;
      if (bits(dtype) > 8) {
        has_wide = true;
      } else {
        needed = fmax(needed, fabs(value(column)) / max_finite_of(dtype));
      }
    }
    for (int step = kWarp / 2; step > 0; step /= 2) {
      needed = fmax(needed, __shfl_xor_sync(0xffffffffu, needed, step));
    }
    has_wide = __any_sync(0xffffffffu, has_wide) != 0;
    const double scale = round_number(granule.scale_dtype, needed);
    return scale == 0.0 && has_wide ? 1.0 : scale;
  }

  __device__ void quantize(const Granule& granule) const {
    std::byte* address = scale_address(granule);
    const bool is_static = granule.part == kPlane && params_.scales_are_static;
    double scale = 0.0;
    if (is_static) {
      if (address != nullptr) scale = load_row_number(address, granule.scale_dtype, 0);
    } else {
      scale = dynamic_scale(granule);
      if (lane_ == 0 && address != nullptr)
        store_row_number(address, granule.scale_dtype, 0, scale);
    }
    const RowFormat& format = params_.view.row_format;
    for (int column = lane_; column < format.width(); column += kWarp) {
      const RowFormat::Column place = format.locate(column);
      if (!belongs(place, column, granule)) continue;
      const double x = value(column);
      const double quotient = scale == 0.0 && !isnan(x) ? 0.0 : x / scale;
      const RowPart& part = format.parts[place.part];
      store_row_number(row_ + part.offset_bytes, part.dtype, place.index, quotient);
    }
  }

  const StoreParams& params_;
  const std::byte* x_;
  std::byte* row_;
  std::byte* plane_;
  int lane_;
};

template <typename Rows>
__global__ void __launch_bounds__(kThreads, 2) store_general(const __grid_constant__ Rows rows) {
  const StoreParams& params = side_of(rows);
  const int heads = params.view.num_heads;
  const std::int64_t index =
      (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;  // of the row
  if (index >= params.tokens * heads) return;
  const std::int64_t token = index / heads;
  const std::int64_t head = index - token * heads;
  const PlaceFinder<Rows, LoneFinder> finder(rows);
  const TokenPlace place = finder.find(token);
  std::byte* row = finder.row(place);
  if (row == nullptr) return;
  std::byte* plane = finder.scale(place);
  const ScaleLayerView& scales = params.view.scales;
  if (plane != nullptr) plane += head * scales.head_stride * (bits(scales.dtype) / 8);
  const std::byte* x =
      params.x + token * params.token_stride_bytes + head * params.head_stride_bytes;
  GeneralRow(params, x, row + head * params.view.head_stride_bytes, plane).store();
}

// A slot that no column of the row has is left alone.
__device__ bool is_used(const RowFormat& format, int slot) {
  int begin = 0;
  for (int p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[p];
    const int end = begin + part.width;
    const bool in_plane = part.scale_source == ScaleSource::plane && part.width > 0;
    if (in_plane && slot >= begin / part.granularity && slot <= (end - 1) / part.granularity) {
      return true;
    }
    begin = end;
  }
  return false;
}

__global__ void __launch_bounds__(kThreads, 2)
    store_scales_kernel(const __grid_constant__ StoreParams params, int slots,
                        int tokens_per_block) {
  extern __shared__ std::byte* bases[];  // [tokens_per_block], slot 0 of head 0
  const std::int64_t first_token = std::int64_t{blockIdx.x} * tokens_per_block;
  const std::int64_t left = params.tokens - first_token;
  const int num_tokens = left < tokens_per_block ? static_cast<int>(left) : tokens_per_block;
  for (int t = threadIdx.x; t < num_tokens; t += kThreads) {
    bases[t] =
        first_scale(params.view, place_of_token(params.row_offsets, params.view.cache_lengths,
                                                params.view.batch, first_token + t));
  }
  __syncthreads();
  const ScaleLayerView& scales = params.view.scales;
  const int per_token = params.view.num_heads * slots;
  const int size = bits(scales.dtype) / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < num_tokens * per_token; i += kThreads) {
    const int token = i / per_token;
    const int head = (i - token * per_token) / slots;
    const int slot = i - token * per_token - head * slots;
    if (bases[token] == nullptr || !is_used(params.view.row_format, slot)) continue;
    const std::byte* source = params.x + (first_token + token) * params.token_stride_bytes +
                              head * params.head_stride_bytes;
    std::byte* target =
        bases[token] + (head * scales.head_stride + slot * scales.slot_stride) * size;
    if (scales.dtype == DType::f32 && params.x_dtype == DType::f32) {
      *reinterpret_cast<float*>(target) =
          reinterpret_cast<const float*>(source)[slot * params.last_stride];
    } else {
      store_number(target, scales.dtype, 0,
                   load_number(source, params.x_dtype, slot * params.last_stride));
    }
  }
}

template <typename Rows> void launch_rows(const Rows& rows, cudaStream_t stream) {
  const std::int64_t threads = first_side(rows).tokens * first_side(rows).view.num_heads * kWarp;
  launch(store_general<Rows>,
         {.grid = dim3(num_blocks(threads, kThreads), 1, num_sides(rows)), .block = dim3(kThreads)},
         stream, rows);
}

}  // namespace

void launch_general(const StoreParams& rows, cudaStream_t stream) {
  launch_rows(rows, stream);
}

void launch_general(const StoreSides& rows, cudaStream_t stream) {
  launch_rows(rows, stream);
}

void launch_scales(const StoreParams& params, cudaStream_t stream) {
  const int slots = params.view.row_format.plane_slots();
  const int per_token = params.view.num_heads * slots;
  if (per_token == 0) return;
  constexpr int kBlockScales = 4 * kThreads;
  const int tokens = per_token >= kBlockScales ? 1 : kBlockScales / per_token;
  launch(store_scales_kernel,
         {.grid = dim3(num_blocks(params.tokens, tokens)),
          .block = dim3(kThreads),
          .shared_bytes = static_cast<std::size_t>(tokens) * sizeof(std::byte*)},
         stream, params, slots, tokens);
}

}  // namespace quire::cuda::any::store
