// SPDX-License-Identifier: Apache-2.0
// Where the columns that a lane of launch_encode() holds go, and their scale.
#pragma once

#include "cuda/any/store/params.h"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::any::store {

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
  return static_cast<float>(round_number(dtype, quotient));
}
__device__ __noinline__ inline void store_other_scale(std::byte* address, DType dtype,
                                                      float scale) {
  store_number(address, dtype, 0, scale);
}
__device__ __noinline__ inline float load_other_scale(const std::byte* address, DType dtype) {
  return static_cast<float>(load_number(address, dtype, 0));
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

}  // namespace quire::cuda::any::store
