// SPDX-License-Identifier: Apache-2.0
#include "cpu/simd/rows_copy.h"
#include "cpu/simd/rows_scale.h"
#include "cpu/simd/rows_zeros.h"
#include "cpu/store/kernels.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

// scales [num_granules] gets the scale of each granule without zeros; dynamic ones are written beside the row.
// The rules are those of cpu/runtime/row_encoding.h, in double as the reference has them.
template <DType kFrom>
void choose_scales(const RowPlan& plan, const std::byte* x, std::byte* row, std::byte* plane,
                   double* scales) {
  for (std::int32_t g = 0; g < plan.num_granules; ++g) scales[g] = 0.0;
  for (std::int32_t r = 0; r < plan.num_runs; ++r) {
    const RowRun& run = plan.runs[r];
    if (run.granule < 0 || bits(run.dtype) > 8 || run.dtype == DType::u4) continue;
    if (plan.granules[run.granule].source == GranuleScale::given) continue;
    const double largest = largest_of<kFrom>(x + run.column * kElementBytes<kFrom>, run.count);
    const double needed = largest / max_finite_of(run.dtype);
    if (needed > scales[run.granule]) scales[run.granule] = needed;
  }
  for (std::int32_t g = 0; g < plan.num_granules; ++g) {
    const RowGranule& granule = plan.granules[g];
    if (granule.has_zeros) continue;
    std::byte* start = granule.source == GranuleScale::in_row ? row : plane;
    std::byte* address = start == nullptr ? nullptr : start + granule.scale_offset;
    if (granule.source == GranuleScale::given) {
      scales[g] = address == nullptr ? 0.0 : widen_one(granule.scale_dtype, address);
      continue;
    }
    const double lowest = lowest_scale(granule.scale_dtype);
    StoredScale scale = round_scale(granule.scale_dtype, scales[g] > lowest ? scales[g] : lowest);
    if (scale.value == 0.0f && granule.has_wide) scale = round_scale(granule.scale_dtype, 1.0);
    scales[g] = scale.value;
    if (address != nullptr) write_scale(granule.scale_dtype, scale, address);
  }
}

template <DType kFrom>
void store_row(const RowPlan& plan, const std::byte* x, std::byte* row, std::byte* plane,
               double* scales) {
  if (plan.num_granules > 0) choose_scales<kFrom>(plan, x, row, plane, scales);
  for (std::int32_t r = 0; r < plan.num_runs; ++r) {
    const RowRun& run = plan.runs[r];
    const std::byte* values = x + run.column * kElementBytes<kFrom>;
    std::byte* target = row + run.offset_bytes;
    if (run.dtype == DType::u4) {
      encode_with_zeros<kFrom>(values, run, plan.granules[run.granule], row);
    } else if (run.granule >= 0) {
      const auto scale = static_cast<float>(scales[run.granule]);
      on_type(run.dtype, [&](auto to) {
        quantize_row<kFrom, decltype(to)::kValue>(values, run.count, scale, target);
      });
    } else if (run.dtype == kFrom) {
      copy_row(kFrom, values, run.count, target);
    } else {
      on_float(run.dtype,
               [&](auto to) { round_row<kFrom, decltype(to)::kValue>(values, run.count, target); });
    }
  }
}

// row_function(x, row, plane) for every head of every token that has a page.
template <typename RowFunction>
void over_rows(const StoreJob& job, const TokenPlace* places, std::int64_t num_places,
               RowFunction row_function) {
  for (std::int64_t i = 0; i < num_places; ++i) {
    const TokenPlace& place = places[i];
    if (place.row == nullptr) continue;
    for (std::int64_t head = 0; head < job.num_heads; ++head) {
      std::byte* plane =
          place.plane == nullptr ? nullptr : place.plane + head * job.plane_head_stride;
      row_function(job.x + place.token * job.x_token_stride + head * job.x_head_stride,
                   place.row + head * job.row_head_stride, plane);
    }
  }
}

void store(const StoreJob& job, const TokenPlace* places, std::int64_t num_places, double* scales) {
  if (job.holds_codes) {
    return over_rows(job, places, num_places, [&](const std::byte* x, std::byte* row, std::byte*) {
      for (std::int32_t r = 0; r < job.plan.num_runs; ++r) {
        const RowRun& run = job.plan.runs[r];
        copy_row(run.dtype, x + bytes_for(run.dtype, run.column), run.count,
                 row + run.offset_bytes);
      }
    });
  }
  on_activation(job.x_dtype, [&](auto from) {
    over_rows(job, places, num_places, [&](const std::byte* x, std::byte* row, std::byte* plane) {
      store_row<decltype(from)::kValue>(job.plan, x, row, plane, scales);
    });
  });
}

void store_scale(const StoreScalesJob& job, const std::byte* from, std::byte* to) {
  // Scales are finite: their own type needs no rounding.
  if (job.dtype == job.plane_dtype) {
    __builtin_memcpy(to, from, static_cast<std::size_t>(bits(job.dtype) / 8));
    return;
  }
  const float scale = widen_one(job.dtype, from);
  narrow_one(job.plane_dtype, scale, to);
}

void store_scales(const StoreScalesJob& job, const TokenPlace* places, std::int64_t num_places) {
  for (std::int64_t i = 0; i < num_places; ++i) {
    if (places[i].plane == nullptr) continue;
    for (std::int64_t head = 0; head < job.num_heads; ++head) {
      const std::byte* from =
          job.scales + places[i].token * job.token_stride + head * job.head_stride;
      std::byte* to = places[i].plane + head * job.plane_head_stride;
      for (std::int64_t s = 0; s < job.num_slots; ++s) {
        store_scale(job, from + job.slots[s] * job.slot_stride,
                    to + job.slots[s] * job.plane_slot_stride);
      }
    }
  }
}

constexpr StoreKernels kStoreKernels{.store = store, .store_scales = store_scales};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const StoreKernels& store_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kStoreKernels;
}

}  // namespace quire::cpu
