// SPDX-License-Identifier: Apache-2.0
// What a projection does with its input before it multiplies.
#pragma once

#include <cstdint>

namespace quire {

enum class Activations : std::uint8_t {
  exact,  // x as it is
  // x rounded to 8-bit integers before the product, which is then one of integers: faster, and a
  // choice of the caller. Per token, over the columns that share a weight scale (in the stored
  // order of an act-order weight): scale = amax / 127 and code = x / scale, both quotients rounded
  // to fp32, the code then to nearest even; code · scale takes the place of x. NaN counts as 0.
  // Weights of int4, gptq, gptq_v2, awq and GGUF's blocks of 32 columns; x of f32, f16 and bf16.
  int8,
};

}  // namespace quire
