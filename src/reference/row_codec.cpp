// SPDX-License-Identifier: Apache-2.0
#include "reference/row_codec.h"

#include <cmath>
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
  double needed = 0.0;     // largest |value| / max_finite among the 8-bit columns
  bool has_wide = false;   // a column of more than 8 bits shares the scale
  bool is_static = false;  // the user's scale: read, not chosen
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
                                                .is_static = in_plane && layout.plane.are_static})
                           .first->second;
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

}  // namespace

void encode_row(const KvOperandRef& rows, std::int64_t sequence, std::int64_t head,
                std::int64_t token, std::span<const double> values, std::span<const double> reach,
                Arithmetic arithmetic) {
  const RowLayout& layout = rows.layout();
  const RowAddress address = rows.row(sequence, head, token);
  if (address.row == nullptr) return;

  std::map<ScaleId, double> scales;
  for (const auto& [id, granule] : granules_of(layout, values)) {
    if (granule.is_static) {
      scales[id] = layout.load_scale(address, granule.first_column);
    } else {
      scales[id] = dynamic_scale(granule);
      layout.store_scale(address, granule.first_column, scales[id]);
    }
  }

  for (std::int32_t column = 0; column < layout.width(); ++column) {
    const RowPart& part = part_of(layout.format, column);
    double value = values[static_cast<std::size_t>(column)];
    double distance = reach.empty() ? 0.0 : reach[static_cast<std::size_t>(column)];
    if (part.scale_source != ScaleSource::none) {
      const double scale = scales.at(scale_id(layout.format, column));
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
