// SPDX-License-Identifier: Apache-2.0
#include "reference/quantize_fp8.h"

#include <algorithm>
#include <cmath>

#include "quire/element.h"

namespace quire::reference {
namespace {

// The smallest power of two that is not below a positive value, exactly.
double round_up_to_power_of_two(double value) {
  if (!std::isfinite(value)) return value;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // in [0.5, 1)
  return std::ldexp(1.0, mantissa == 0.5 ? exponent - 1 : exponent);
}

double scale_for(const QuantizeFp8Args& args, double amax) {
  const double bounded = std::min(amax, args.scale_upper_bound);
  return round_to(args.scale.dtype, fp8_scale(bounded, args.out.dtype, args.scale_rounding));
}

void quantize_group(const QuantizeFp8Args& args, std::int64_t row, std::int64_t first,
                    std::int64_t last, std::int64_t group) {
  double amax = 0.0;
  for (std::int64_t column = first; column < last; ++column) {
    amax = std::fmax(amax, std::abs(args.x.load({row, column})));
  }
  const double scale = scale_for(args, amax);
  args.scale.store({row, group}, scale);
  for (std::int64_t column = first; column < last; ++column) {
    const double value = args.x.load({row, column});
    const bool is_empty = scale == 0.0 && !std::isnan(value);
    args.out.store({row, column}, is_empty ? 0.0 : value / scale);
  }
}

}  // namespace

double fp8_scale(double amax, DType code, ScaleRounding rounding) {
  const double exact = amax / max_finite(code);
  return rounding == ScaleRounding::exact
             ? exact
             : round_up_to_power_of_two(std::max(exact, kLowestPowerScale));
}

void quantize_fp8(const QuantizeFp8Args& args) {
  const std::int64_t columns = args.x.shape[1];
  const std::int64_t size = args.group_size < 0 ? columns : args.group_size;
  for (std::int64_t row = 0; row < args.x.shape[0]; ++row) {
    for (std::int64_t first = 0; first < columns; first += size) {
      quantize_group(args, row, first, std::min(first + size, columns), first / size);
    }
  }
}

}  // namespace quire::reference
