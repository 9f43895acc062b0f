// SPDX-License-Identifier: Apache-2.0
// Dynamic fp8 quantization of rows in groups along the last axis:
//   scale = min(amax, scale_upper_bound) / max_finite,   q = saturate(x / scale)
// An all-zero group gives scale 0 and zeros. Power-of-two scales round up (e8m0),
//   scale = 2^ceil(log2(max(min(amax, scale_upper_bound) / max_finite, 1e-10)))
// and are never 0: an all-zero group then has the smallest one, 2^-33.
#pragma once

#include <cstdint>
#include <limits>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/plan.h"
#include "quire/prepared.h"
#include "quire/tensor_view.h"

namespace quire {

enum class ScaleRounding : std::uint8_t { exact, power_of_two };

struct QuantizeFp8Args {
  TensorView x;                  // [rows, columns] f32, f16, bf16
  std::int64_t group_size = -1;  // columns that share a scale; -1: the whole row
  double scale_upper_bound = std::numeric_limits<double>::infinity();
  ScaleRounding scale_rounding = ScaleRounding::exact;
  TensorView out;  // fp8 [rows, columns]
  // f32 [rows, ceil(columns / group)], any strides (a transposed view for M-major scales); e8m0 takes
  // power-of-two scales
  TensorView scale;
};

struct QuantizeFp8Problem {
  Device device{};
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t group_size = 0;
  DType x_dtype = DType::bf16;
  DType out_dtype = DType::fp8_e4m3;
  DType scale_dtype = DType::f32;
  ScaleRounding scale_rounding = ScaleRounding::exact;

  bool operator==(const QuantizeFp8Problem&) const = default;
};

QUIRE_API QuantizeFp8Problem validate(const QuantizeFp8Args& args);
QUIRE_API Plan plan(const QuantizeFp8Problem& problem, const Context& context = {});
QUIRE_API Prepared<QuantizeFp8Problem> prepare(const QuantizeFp8Problem& problem,
                                               const Context& context = {});
QUIRE_API Plan supports(const QuantizeFp8Args& args, const Context& context = {});
QUIRE_API void run(const Prepared<QuantizeFp8Problem>& prepared, const QuantizeFp8Args& args,
                   const Context& context = {});
QUIRE_API void quantize_fp8(const QuantizeFp8Args& args, const Context& context = {});

}  // namespace quire
