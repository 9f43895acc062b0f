// SPDX-License-Identifier: Apache-2.0
// Rows that are rounded or quantized on their way into the pages. `kLanes` lanes hold a row, each of
// them `kSlots` vectors of eight columns; a scale is a maximum over neighbouring lanes.
#include "cuda/any/store/places.cuh"
#include "cuda/common/rows/quotient.cuh"
#include "cuda/common/rows/scale_number.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::store {

// Where the columns that a lane of launch_encode() holds go, and their scale.

// What a lane needs to know of the columns it holds; the same for every row.
struct LanePart {
  DType dtype = DType::f32;
  ScaleSource source = ScaleSource::none;
  int offset_bytes = 0;  // of the lane's eight numbers in the row
  int scale_index = 0;   // in the row's scales or in the plane
  int scale_offset_bytes = 0;
  DType scale_dtype = DType::f32;
  bool is_used = false;
  bool writes_scale = false;  // the first lane of its granule
};

__device__ inline LanePart part_of_lane(const KvLayerView& view, int column,
                                        const EncodeLayout& layout) {
  LanePart lane;
  if (column >= view.row_format.width()) return lane;
  const RowFormat::Column place = view.row_format.locate(column);
  const RowPart& part = view.row_format.parts[place.part];
  const bool in_row = part.scale_source == ScaleSource::in_row;
  lane.is_used = true;
  lane.dtype = part.dtype;
  lane.source = part.scale_source;
  lane.offset_bytes = part.offset_bytes + place.index * (bits(part.dtype) / 8);
  if (part.scale_source == ScaleSource::none) return lane;
  const int vector = (in_row ? place.index : column) / kVec8;
  lane.scale_index = layout.granule_vectors == 0 ? 0 : vector >> layout.granule_shift;
  lane.scale_offset_bytes = part.scale_offset_bytes;
  lane.scale_dtype = in_row ? part.scale_dtype : view.scales.dtype;
  lane.writes_scale = layout.granule_vectors == 0
                          ? column == 0
                          : (column / kVec8 & (layout.granule_vectors - 1)) == 0;
  return lane;
}

struct CacheRowPlace {
  std::byte* row = nullptr;
  std::byte* scale = nullptr;  // slot 0 in the scales tensor
};

__device__ inline std::byte* scale_of(const LanePart& lane, const CacheRowPlace& place,
                                      const ScaleLayerView& scales) {
  if (lane.source == ScaleSource::in_row) {
    return place.row + lane.scale_offset_bytes + lane.scale_index * (bits(lane.scale_dtype) / 8);
  }
  if (place.scale == nullptr) return nullptr;
  return place.scale + lane.scale_index * scales.slot_stride * (bits(scales.dtype) / 8);
}

// Scales of other types than f32: functions of their own, so that what every row needs lies together.
__device__ __noinline__ inline float round_other_scale(DType dtype, double quotient) {
  return static_cast<float>(round_needed_scale(dtype, quotient));
}
__device__ __noinline__ inline void store_other_scale(std::byte* address, DType dtype,
                                                      float scale) {
  cuda::store_scale(address, dtype, 0, scale);
}
__device__ __noinline__ inline float load_other_scale(const std::byte* address, DType dtype) {
  return static_cast<float>(cuda::load_scale(address, dtype, 0));
}

__device__ inline float round_scale(DType dtype, float amax, float max_finite) {
  if (dtype == DType::f32) return __fdiv_rn(amax, max_finite);
  return round_other_scale(dtype, static_cast<double>(amax) / static_cast<double>(max_finite));
}
__device__ inline void store_scale(std::byte* address, DType dtype, float scale) {
  if (dtype != DType::f32) return store_other_scale(address, dtype, scale);
  *reinterpret_cast<float*>(address) = scale;
}
__device__ inline float load_scale(const std::byte* address, DType dtype) {
  return dtype == DType::f32 ? *reinterpret_cast<const float*>(address)
                             : load_other_scale(address, dtype);
}

namespace {

constexpr int kThreads = 256;

template <DType kXType, int kRowLanes, int kLaneSlots> struct EncodeConfig {
  static constexpr DType kX = kXType;
  static constexpr int kLanes = kRowLanes;
  static constexpr int kSlots = kLaneSlots;
  static constexpr int kRows = kSlots >= 3 ? 1 : 4 / kSlots;  // of a group of lanes, in flight
  static constexpr int kBlockRows = kThreads / kLanes * kRows;
};

template <typename Config> class RowEncoder {
 public:
  __device__ RowEncoder(const StoreParams& params, const EncodeLayout& layout, int lane)
      : params_(params), layout_(layout) {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      parts_[s] = part_of_lane(params.view, (s * Config::kLanes + lane) * kVec8, layout);
    }
  }

  __device__ void load(const std::byte* source, int lane,
                       typename Vec8<Config::kX>::Raw (&raw)[Config::kSlots]) const {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      const std::int64_t column = (s * Config::kLanes + lane) * kVec8;
      if (parts_[s].is_used) {
        raw[s] = Vec8<Config::kX>::load(source + column * (bits(Config::kX) / 8));
      }
    }
  }

  // All lanes of the group take part; a row without a page is dropped.
  __device__ void store(const typename Vec8<Config::kX>::Raw (&raw)[Config::kSlots],
                        const CacheRowPlace& place) const {
    float values[Config::kSlots][kVec8];
    float amax[Config::kSlots];
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      Vec8<Config::kX>::decode(raw[s], values[s]);
      amax[s] = largest(values[s], parts_[s]);
    }
    if (layout_.has_scales && !params_.scales_are_static) reduce(amax);
    if (place.row == nullptr) return;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (!parts_[s].is_used) continue;
      if (parts_[s].source != ScaleSource::none) divide(values[s], parts_[s], amax[s], place);
      store_vec8(place.row + parts_[s].offset_bytes, parts_[s].dtype, values[s]);
    }
  }

 private:
  // Wider columns take the scale of the 8-bit ones and have no say in it.
  __device__ static float largest(const float (&values)[kVec8], const LanePart& lane) {
    float amax = 0.0f;
    if (!lane.is_used || lane.source == ScaleSource::none || bits(lane.dtype) > 8) return amax;
#pragma unroll
    for (int i = 0; i < kVec8; ++i) amax = fmaxf(amax, fabsf(values[i]));
    return amax;
  }

  __device__ void reduce(float (&amax)[Config::kSlots]) const {
    const int width = layout_.granule_vectors == 0 ? Config::kLanes : layout_.granule_vectors;
    if (layout_.granule_vectors == 0) {
#pragma unroll
      for (int s = 1; s < Config::kSlots; ++s) amax[0] = fmaxf(amax[0], amax[s]);
    }
    for (int step = width / 2; step > 0; step /= 2) {
#pragma unroll
      for (int s = 0; s < Config::kSlots; ++s) {
        amax[s] = fmaxf(amax[s], __shfl_xor_sync(0xffffffffu, amax[s], step));
      }
    }
    if (layout_.granule_vectors != 0) return;
#pragma unroll
    for (int s = 1; s < Config::kSlots; ++s) amax[s] = amax[0];
  }

  __device__ void divide(float (&values)[kVec8], const LanePart& lane, float amax,
                         const CacheRowPlace& place) const {
    std::byte* address = scale_of(lane, place, params_.view.scales);
    const bool is_static = lane.source == ScaleSource::plane && params_.scales_are_static;
    float scale = 0.0f;
    if (is_static) {
      if (address != nullptr) scale = load_scale(address, lane.scale_dtype);
    } else {
      scale = round_scale(lane.scale_dtype, amax, max_finite_of(layout_.coded));
      if (scale == 0.0f && layout_.granule_is_wide) scale = 1.0f;
      if (lane.writes_scale && address != nullptr) store_scale(address, lane.scale_dtype, scale);
    }
    const Quotient quotient(scale, amax);
    if (bits(lane.dtype) > 8) {
      quotient.divide_wide(values);
    } else {
      quotient.divide(values);
    }
  }

  const StoreParams& params_;
  const EncodeLayout& layout_;
  LanePart parts_[Config::kSlots];
};

// StoreSides takes a few registers more: where the other rows have 64, it is told to make do with them.
template <typename Config, typename Rows> constexpr int ctas_per_sm() {
  constexpr bool kIsShort = Config::kSlots == 1 && bits(Config::kX) == 16;
  return kIsShort && std::is_same_v<Rows, StoreSides> ? 4 : 2;
}

template <typename Config, typename Rows>
__global__ void __launch_bounds__(kThreads, (ctas_per_sm<Config, Rows>()))
    encode_rows(const __grid_constant__ Rows rows, const __grid_constant__ EncodeLayout layout) {
  const StoreParams& params = side_of(rows);
  __shared__ CacheRowPlace places[Config::kBlockRows + 1];  // of head 0, by token
  const auto heads = static_cast<int>(layout.heads.value());
  const std::int64_t num_rows = params.tokens * heads;
  const std::int64_t first = std::int64_t{blockIdx.x} * Config::kBlockRows;
  const std::int64_t first_token = layout.heads.quotient_of(first);
  const auto skipped = static_cast<int>(first - first_token * heads);
  const std::int64_t left = num_rows - first;
  const int count = left < Config::kBlockRows ? static_cast<int>(left) : Config::kBlockRows;
  const int lane = threadIdx.x % Config::kLanes;
  const int group = threadIdx.x / Config::kLanes;
  constexpr int kGroups = kThreads / Config::kLanes;

  const RowEncoder<Config> encoder(params, layout, lane);
  typename Vec8<Config::kX>::Raw raw[Config::kRows][Config::kSlots] = {};
#pragma unroll
  for (int r = 0; r < Config::kRows; ++r) {
    const int row = r * kGroups + group;
    if (row >= count) continue;
    const auto token = static_cast<int>(layout.heads.quotient(skipped + row));
    encoder.load(params.x + (first_token + token) * params.token_stride_bytes +
                     (skipped + row - token * heads) * params.head_stride_bytes,
                 lane, raw[r]);
  }

  const PlaceFinder<Rows, LoneFinder> finder(rows);
  for (int t = threadIdx.x; t <= static_cast<int>(layout.heads.quotient(skipped + count - 1));
       t += kThreads) {
    const TokenPlace place = finder.find(first_token + t);
    places[t] = {finder.row(place), finder.scale(place)};
  }
  __syncthreads();

  const std::int64_t scale_head_bytes =
      params.view.scales.head_stride * (bits(params.view.scales.dtype) / 8);
#pragma unroll
  for (int r = 0; r < Config::kRows; ++r) {
    const int row = r * kGroups + group;
    CacheRowPlace place;
    if (row < count) {
      const auto token = static_cast<int>(layout.heads.quotient(skipped + row));
      const int head = skipped + row - token * heads;
      place = places[token];
      if (place.row != nullptr) place.row += head * params.view.head_stride_bytes;
      if (place.scale != nullptr) place.scale += head * scale_head_bytes;
    }
    encoder.store(raw[r], place);  // rows past the end have no page: the shuffles stay whole
  }
}

template <typename Config, typename Rows>
void launch_config(const Rows& rows, const EncodeLayout& layout, cudaStream_t stream) {
  const std::int64_t count = first_side(rows).tokens * first_side(rows).view.num_heads;
  launch(encode_rows<Config, Rows>,
         {.grid = dim3(num_blocks(count, Config::kBlockRows), 1, num_sides(rows)),
          .block = dim3(kThreads)},
         stream, rows, layout);
}

template <DType kX, typename Rows>
void launch_for(const Rows& rows, const EncodeLayout& layout, cudaStream_t stream) {
  if (layout.lanes == 8) return launch_config<EncodeConfig<kX, 8, 1>>(rows, layout, stream);
  if (layout.lanes == 16) return launch_config<EncodeConfig<kX, 16, 1>>(rows, layout, stream);
  if (layout.slots == 1) return launch_config<EncodeConfig<kX, 32, 1>>(rows, layout, stream);
  if (layout.slots == 2) return launch_config<EncodeConfig<kX, 32, 2>>(rows, layout, stream);
  if (layout.slots == 3) return launch_config<EncodeConfig<kX, 32, 3>>(rows, layout, stream);
  launch_config<EncodeConfig<kX, 32, 4>>(rows, layout, stream);
}

template <typename Rows>
void launch_for_x(const Rows& rows, const EncodeLayout& layout, cudaStream_t stream) {
  const DType x_dtype = first_side(rows).x_dtype;
  if (x_dtype == DType::bf16) return launch_for<DType::bf16>(rows, layout, stream);
  if (x_dtype == DType::f16) return launch_for<DType::f16>(rows, layout, stream);
  launch_for<DType::f32>(rows, layout, stream);
}

}  // namespace

void launch_encode(const StoreParams& rows, const EncodeLayout& layout, cudaStream_t stream) {
  launch_for_x(rows, layout, stream);
}

void launch_encode(const StoreSides& rows, const EncodeLayout& layout, cudaStream_t stream) {
  launch_for_x(rows, layout, stream);
}

}  // namespace quire::cuda::any::store
