// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <limits>

#include "cuda/any/quantize_fp8/launch.h"
#include "cuda/any/quantize_fp8/params.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "quire/element.h"

namespace quire::cuda::any::quantize_fp8 {
namespace {

constexpr std::int64_t kVectorColumns = 8;
constexpr std::int64_t kLongestRow = 16384;
constexpr std::int64_t kMostVectors = (std::int64_t{1} << 31) - 1024;  // of 32-bit index arithmetic

bool is_aligned(const void* address, std::int64_t stride_bytes, std::int64_t to) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address)) % to == 0 &&
         stride_bytes % to == 0;
}

bool has_whole_vectors(const QuantizeParams& params) {
  return params.columns % kVectorColumns == 0 && is_aligned(params.x, params.x_stride_bytes, 16) &&
         is_aligned(params.out, params.out_stride_bytes, 8);
}

// The largest f32 that is not above a positive bound.
float round_down(double bound) {
  const auto nearest = static_cast<float>(bound);
  if (static_cast<double>(nearest) <= bound) return nearest;
  return std::nextafter(nearest, 0.0f);
}

}  // namespace

bool takes_lane_groups(const QuantizeParams& params) {
  const std::int64_t vectors = params.group_size / kVectorColumns;
  const bool is_countable = params.rows * params.columns / kVectorColumns < kMostVectors;
  return has_whole_vectors(params) && is_countable && params.group_size % kVectorColumns == 0 &&
         params.columns % params.group_size == 0 && vectors <= 32 &&
         std::has_single_bit(static_cast<std::uint64_t>(vectors));
}

bool takes_whole_rows(const QuantizeParams& params) {
  return has_whole_vectors(params) && params.group_size >= params.columns &&
         params.columns <= kLongestRow;
}

std::string refuse(const QuantizeFp8Problem& problem) {
  return refuse_unless_sm80(problem.device);
}

void quantize_fp8(const QuantizeFp8Args& args, const Context& context) {
  const DeviceScope scope(args.x.device);
  const std::int64_t columns = args.x.shape[1];
  const double bound = args.scale_upper_bound;
  const QuantizeParams params{
      .x = args.x.as<const std::byte>(),
      .x_dtype = args.x.dtype,
      .x_stride_bytes = bytes_for(args.x.dtype, args.x.strides[0]),
      .out = args.out.as<std::byte>(),
      .out_dtype = args.out.dtype,
      .out_stride_bytes = args.out.strides[0],
      .scale = args.scale.as<float>(),
      .scale_row_stride = args.scale.strides[0],
      .scale_group_stride = args.scale.strides[1],
      .rows = args.x.shape[0],
      .columns = columns,
      .group_size = args.group_size < 0 ? columns : args.group_size,
      .largest_amax = round_down(bound),
      .capped_scale = static_cast<float>(bound / max_finite(args.out.dtype)),
      .rounding = args.scale_rounding,
  };
  if (params.rows == 0) return;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (takes_lane_groups(params)) return launch_lane_groups(params, stream);
  if (takes_whole_rows(params)) return launch_whole_rows(params, stream);
  launch_general(params, stream);
}

}  // namespace quire::cuda::any::quantize_fp8
