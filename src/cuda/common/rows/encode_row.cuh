// SPDX-License-Identifier: Apache-2.0
// A row of numbers on its way into the pages, in double: any row format, any alignment. By one warp or by several, each of
// which takes granules of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/rows/scale_number.cuh"
#include "quire/kv_layer_view.h"

namespace quire::cuda {

// Where a row goes.
struct RowDestination {
  const KvLayerView& view;
  bool scales_are_static;  // those of the plane are read, not chosen
  std::byte* row;
  std::byte* plane;  // the row's slot 0 in the scales tensor; null: none
};

// The warps that share a row, and the one that asks.
struct WarpShare {
  int warp = 0;
  int num_warps = 1;
};

// Numbers: a double for a column of the row, of any lane.
template <typename Numbers> class ScalarRowEncoder {
 public:
  __device__ ScalarRowEncoder(const RowDestination& target, const Numbers& numbers,
                              const WarpShare& share)
      : target_(target),
        numbers_(numbers),
        share_(share),
        lane_(static_cast<int>(threadIdx.x) % kWarp) {}

  // By all lanes of every warp.
  __device__ void encode() const {
    store_unscaled();
    const RowFormat& format = target_.view.row_format;
    int number = 0;
    const auto is_own = [&] { return number++ % share_.num_warps == share_.warp; };
    for (int p = 0; p < format.num_parts; ++p) {
      const RowPart& part = format.parts[p];
      if (part.scale_source != ScaleSource::in_row) continue;
      for (int i = 0; std::int64_t{i} * part.granularity < part.width; ++i) {
        if (is_own()) quantize({.part = p, .index = i, .scale_dtype = part.scale_dtype});
      }
    }
    for (int slot = 0; slot < format.plane_slots(); ++slot) {
      if (!is_own()) continue;
      quantize({.part = kPlane, .index = slot, .scale_dtype = target_.view.scales.dtype});
    }
  }

 private:
  static constexpr int kWarp = 32;
  static constexpr int kPlane = -1;

  // The columns that share a scale: slot `index` of the plane, or of a part's own scales.
  struct Granule {
    int part;  // kPlane: those of every part with scales in the plane
    int index;
    DType scale_dtype;
  };

  __device__ void store_unscaled() const {
    const RowFormat& format = target_.view.row_format;
    int begin = 0;
    for (int p = 0; p < format.num_parts; ++p) {
      const RowPart& part = format.parts[p];
      if (part.scale_source == ScaleSource::none) {
        for (int i = share_.warp * kWarp + lane_; i < part.width; i += share_.num_warps * kWarp) {
          store_row_number(target_.row + part.offset_bytes, part.dtype, i, numbers_(begin + i));
        }
      }
      begin += part.width;
    }
  }

  // body(part, its first column, a column within it) for the lane's columns of a granule.
  template <typename Body>
  __device__ void over_columns(const Granule& granule, const Body& body) const {
    const RowFormat& format = target_.view.row_format;
    int begin = 0;
    for (int p = 0; p < format.num_parts; ++p) {
      const RowPart& part = format.parts[p];
      const bool in_plane = granule.part == kPlane && part.scale_source == ScaleSource::plane;
      if (granule.part == p || in_plane) {
        // Granules of the plane count from the row's first column.
        const std::int64_t from =
            std::int64_t{granule.index} * part.granularity - (in_plane ? begin : 0);
        const std::int64_t end = min(from + part.granularity, std::int64_t{part.width});
        for (std::int64_t i = max(from, std::int64_t{0}) + lane_; i < end; i += kWarp) {
          body(part, begin, static_cast<int>(i));
        }
      }
      begin += part.width;
    }
  }

  __device__ std::byte* scale_address(const Granule& granule) const {
    if (granule.part != kPlane) {
      return target_.row + target_.view.row_format.parts[granule.part].scale_offset_bytes +
             granule.index * (bits(granule.scale_dtype) / 8);
    }
    const ScaleLayerView& scales = target_.view.scales;
    if (target_.plane == nullptr) return nullptr;
    return target_.plane + granule.index * scales.slot_stride * (bits(scales.dtype) / 8);
  }

  // scale = amax / max_finite of the 8-bit columns; 0 becomes 1 where wider ones share it. Negative: no column has it.
  __device__ double choose_scale(const Granule& granule) const {
    double needed = -1.0;
    bool has_wide = false;
    over_columns(granule, [&](const RowPart& part, int begin, int i) {
      if (bits(part.dtype) > 8) {
        has_wide = true;
      } else {
        needed = fmax(needed, 0.0);  // NaN has no say
        needed = fmax(needed, fabs(numbers_(begin + i)) / max_finite_of(part.dtype));
      }
    });
    for (int step = kWarp / 2; step > 0; step /= 2) {
      needed = fmax(needed, __shfl_xor_sync(0xffffffffu, needed, step));
    }
    has_wide = __any_sync(0xffffffffu, has_wide) != 0;
    if (needed < 0.0 && !has_wide) return needed;
    const double scale = round_needed_scale(granule.scale_dtype, fmax(needed, 0.0));
    return scale == 0.0 && has_wide ? 1.0 : scale;
  }

  __device__ void quantize(const Granule& granule) const {
    std::byte* address = scale_address(granule);
    const bool is_static = granule.part == kPlane && target_.scales_are_static;
    double scale = 0.0;
    if (is_static) {
      if (address != nullptr) scale = load_scale(address, granule.scale_dtype, 0);
    } else {
      scale = choose_scale(granule);
      const bool is_written = scale >= 0.0 && lane_ == 0 && address != nullptr;
      if (is_written) store_scale(address, granule.scale_dtype, 0, scale);
    }
    over_columns(granule, [&](const RowPart& part, int begin, int i) {
      const double x = numbers_(begin + i);
      const double quotient = scale == 0.0 && !isnan(x) ? 0.0 : x / scale;
      store_row_number(target_.row + part.offset_bytes, part.dtype, i, quotient);
    });
  }

  const RowDestination& target_;
  const Numbers& numbers_;
  WarpShare share_;
  int lane_;
};

}  // namespace quire::cuda
