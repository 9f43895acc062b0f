// SPDX-License-Identifier: Apache-2.0
#include "reference/row_codec.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "quire/element.h"
#include "reference/quantize_fp8.h"

namespace quire::reference {
namespace {

// Which scale a column has: (part, slot) in the row, (kPlane, slot) in the scales tensor.
using ScaleId = std::pair<std::int32_t, std::int32_t>;
constexpr std::int32_t kPlane = -1;

struct Granule {
  std::int32_t first_column = 0;
  DType scale_dtype = DType::f32;
  double needed = 0.0;     // largest |value| / max_finite among the columns of 8 bits or fewer
  bool has_wide = false;   // a column of more than 8 bits shares the scale
  bool is_static = false;  // the user's scale: read, not chosen
  bool has_zeros = false;  // of u4: the range of the values counts instead of the largest one
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
};

// value = code · scale + zero
struct Scaling {
  double scale = 1.0;
  double zero = 0.0;
};

using Granules = std::map<ScaleId, Granule>;

ScaleId scale_id(const RowFormat& format, std::int32_t column) {
  const auto [part_index, index] = format.locate(column);
  const RowPart& part = format.parts[static_cast<std::size_t>(part_index)];
  if (part.scale_source == ScaleSource::plane) return {kPlane, column / part.granularity};
  return {part_index, index / part.granularity};
}

const RowPart& part_of(const RowFormat& format, std::int32_t column) {
  return format.parts[static_cast<std::size_t>(format.locate(column).part)];
}

Granules granules_of(const RowLayout& layout, std::span<const double> values) {
  Granules granules;
  for (std::int32_t column = 0; column < layout.width(); ++column) {
    const RowPart& part = part_of(layout.format, column);
    if (part.scale_source == ScaleSource::none) continue;
    const bool in_plane = part.scale_source == ScaleSource::plane;
    const DType scale_dtype = in_plane ? layout.plane.dtype : part.scale_dtype;
    Granule& granule = granules
                           .try_emplace(scale_id(layout.format, column),
                                        Granule{.first_column = column,
                                                .scale_dtype = scale_dtype,
                                                .is_static = in_plane && layout.plane.are_static,
                                                .has_zeros = part.has_zeros()})
                           .first->second;
    granule.low = std::fmin(granule.low, values[static_cast<std::size_t>(column)]);
    granule.high = std::fmax(granule.high, values[static_cast<std::size_t>(column)]);
    if (bits(part.dtype) > 8) {
      granule.has_wide = true;
    } else {
      const double magnitude = std::abs(values[static_cast<std::size_t>(column)]);
      granule.needed = std::fmax(granule.needed, magnitude / max_finite(part.dtype));
    }
  }
  return granules;
}

double dynamic_scale(const Granule& granule) {
  const double lowest = granule.scale_dtype == DType::e8m0 ? kLowestPowerScale : 0.0;
  const double scale = round_to(granule.scale_dtype, std::fmax(granule.needed, lowest));
  return scale == 0.0 && granule.has_wide ? 1.0 : scale;
}

// The lowest value is code 0 and the highest one code 15, as nearly as the scale's dtype allows.
Scaling dynamic_range(const Granule& granule) {
  if (granule.high < granule.low) return {.scale = 0.0, .zero = 0.0};  // NaN alone
  constexpr double kLargestCode = 15.0;
  // Equal infinities have no distance.
  const double range = granule.high > granule.low ? granule.high - granule.low : 0.0;
  return {.scale = round_to(granule.scale_dtype, range / kLargestCode),
          .zero = round_to(granule.scale_dtype, granule.low) + 0.0};  // -0 becomes 0
}

// The scaling of a granule: read, or chosen and written beside the row.
Scaling scale_granule(const RowLayout& layout, const RowAddress& address, const Granule& granule) {
  const std::int32_t column = granule.first_column;
  if (granule.is_static) return {.scale = layout.load_scale(address, column)};
  const Scaling scaling =
      granule.has_zeros ? dynamic_range(granule) : Scaling{.scale = dynamic_scale(granule)};
  layout.store_scale(address, column, scaling.scale);
  layout.store_zero(address, column, scaling.zero);
  return scaling;
}

}  // namespace

void encode_row(const KvOperandRef& rows, std::int64_t sequence, std::int64_t head,
                std::int64_t token, std::span<const double> values, std::span<const double> reach,
                Arithmetic arithmetic) {
  const RowLayout& layout = rows.layout();
  const RowAddress address = rows.row(sequence, head, token);
  if (address.row == nullptr) return;

  std::map<ScaleId, Scaling> scales;
  for (const auto& [id, granule] : granules_of(layout, values)) {
    scales[id] = scale_granule(layout, address, granule);
  }

  for (std::int32_t column = 0; column < layout.width(); ++column) {
    const RowPart& part = part_of(layout.format, column);
    double value = values[static_cast<std::size_t>(column)];
    double distance = reach.empty() ? 0.0 : reach[static_cast<std::size_t>(column)];
    if (part.scale_source != ScaleSource::none) {
      const auto [scale, zero] = scales.at(scale_id(layout.format, column));
      if (part.has_zeros()) value -= zero;
      value = scale == 0.0 && !std::isnan(value) ? 0.0 : value / scale;
      distance = scale == 0.0 ? 0.0 : distance / scale;
    }
    layout.store(address, column, round_within(arithmetic, part.dtype, value, distance));
  }
}

std::vector<double> decode_row(const KvOperandRef& rows, std::int64_t sequence, std::int64_t head,
                               std::int64_t token) {
  const RowLayout& layout = rows.layout();
  const RowAddress address = rows.row(sequence, head, token);
  std::vector<double> values(static_cast<std::size_t>(layout.width()));
  for (std::int32_t column = 0; column < layout.width(); ++column) {
    values[static_cast<std::size_t>(column)] = layout.load(address, column);
  }
  return values;
}

}  // namespace quire::reference
