// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/projection_weight.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "quire/element.h"

namespace quire::tools::demo {
namespace {

constexpr std::int64_t kGroup = 32;
constexpr double kMaxCode = 15.0;

}  // namespace

ProjectionWeight::ProjectionWeight(WeightFormat format, std::int64_t rows, std::int64_t columns,
                                   std::string_view name, std::uint64_t seed)
    : format_(format) {
  const double amplitude = 1.0 / std::sqrt(static_cast<double>(columns));
  const Matrix values = Matrix::random(rows, columns, name, seed, amplitude);
  if (format == WeightFormat::dense) {
    data_ = to_tensor(values, DType::bf16, {rows, columns});
  } else if (format == WeightFormat::fp8) {
    quantize_fp8_rows(values);
  } else if (format == WeightFormat::int4) {
    quantize_int4_groups(values);
  } else {
    throw std::invalid_argument("ProjectionWeight: no " + std::string(quire::name(format)));
  }
}

void ProjectionWeight::quantize_fp8_rows(const Matrix& values) {
  data_ = Tensor(DType::fp8_e4m3, {values.rows, values.columns});
  scale_ = Tensor(DType::f32, {values.rows, 1});
  for (std::int64_t row = 0; row < values.rows; ++row) {
    double largest = 0.0;
    for (const float value : values.row(row)) largest = std::fmax(largest, std::abs(value));
    const double scale = round_to(DType::f32, largest / max_finite(DType::fp8_e4m3));
    scale_.view().store({row, 0}, scale);
    for (std::int64_t k = 0; k < values.columns; ++k) {
      data_.view().store({row, k}, values.row(row)[static_cast<std::size_t>(k)] / scale);
    }
  }
}

// code = value / scale + zero, with the range of the group spread over the codes 0..15.
void ProjectionWeight::quantize_int4_groups(const Matrix& values) {
  const std::int64_t num_groups = values.columns / kGroup;
  data_ = Tensor(DType::u4, {values.rows, values.columns});
  scale_ = Tensor(DType::bf16, {values.rows, num_groups});
  zeros_ = Tensor(DType::u8, {values.rows, num_groups});
  for (std::int64_t row = 0; row < values.rows; ++row) {
    for (std::int64_t group = 0; group < num_groups; ++group) {
      const std::span<const float> part =
          values.row(row).subspan(static_cast<std::size_t>(group * kGroup), kGroup);
      const auto [lowest, highest] = std::ranges::minmax(part);
      const double scale = round_to(DType::bf16, (highest - lowest) / kMaxCode);
      const double zero = std::clamp(std::round(-lowest / scale), 0.0, kMaxCode);
      scale_.view().store({row, group}, scale);
      zeros_.view().store({row, group}, zero);
      for (std::int64_t i = 0; i < kGroup; ++i) {
        const double code = std::round(part[static_cast<std::size_t>(i)] / scale + zero);
        data_.view().store({row, group * kGroup + i}, std::clamp(code, 0.0, kMaxCode));
      }
    }
  }
}

Weight ProjectionWeight::view() const {
  Weight weight{.data = data_.view(), .format = format_};
  if (format_ != WeightFormat::dense) weight.scale = scale_.view();
  if (format_ == WeightFormat::int4) {
    weight.zeros = zeros_.view();
    weight.group_size = kGroup;
  }
  return weight;
}

}  // namespace quire::tools::demo
