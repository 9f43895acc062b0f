// SPDX-License-Identifier: Apache-2.0
// Dynamic fp8 quantization of rows in groups. The upper bound limits amax for both kinds of scale;
// a power-of-two scale of an all-zero group is the smallest one, 2^-33, and its codes are 0.
// NaN does not count for amax and stays NaN.
#pragma once

#include "quire/ops/quantize_fp8.h"

namespace quire::reference {

// Power-of-two scales are 2^ceil(log2(at least this)).
inline constexpr double kLowestPowerScale = 1e-10;

void quantize_fp8(const QuantizeFp8Args& args);

// The scale of a group with this amax for codes of a type, before it is rounded to its own dtype.
double fp8_scale(double amax, DType code, ScaleRounding rounding);

}  // namespace quire::reference
