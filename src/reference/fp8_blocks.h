// SPDX-License-Identifier: Apache-2.0
// The two sides of an fp8 matrix product in blocks of 128: activations quantized on the fly,
// weights with 128×128 scales.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quire/tensor_view.h"
#include "reference/arithmetic.h"

namespace quire::reference {

inline constexpr std::int64_t kFp8Block = 128;

// The values that are left of a row when every 128 columns are quantized with a scale of their own:
//   scale = min(amax, 1200) / max_finite in f32,   x ← scale · saturate(x / scale)
// A group whose scale is zero, or too small to have a reciprocal in f32, becomes zeros. `reach`: how far
// fp32 arithmetic may have brought a number of the row.
void quantize_blocks(std::span<double> row, DType fp8, Arithmetic arithmetic, double reach = 0.0);

// Row `row` of matrix `outer` of weight [outer, rows, columns], times its block's scale [outer,
// rows/128, columns/128].
std::vector<double> load_weight_row(const TensorView& weight,
                                    const std::optional<TensorView>& scale, std::int64_t outer,
                                    std::int64_t row);
// The same of weight [rows, columns] with scale [rows/128, columns/128].
std::vector<double> load_weight_row(const TensorView& weight,
                                    const std::optional<TensorView>& scale, std::int64_t row);

// left · each of `rights`, all of numbers with a scale per 128 columns. The random evaluations that take fp8 products add
// up a block as Hopper's tensor cores do (`short_dot`) and the sums of blocks in fp32; all others as `dots`.
std::vector<double> block_dots(Arithmetic arithmetic, std::span<const double> left,
                               std::span<const std::span<const double>> rights);

}  // namespace quire::reference
