// SPDX-License-Identifier: Apache-2.0
// Reading and writing one element of any dtype. For oracles, edges and tests: kernels use typed
// loads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/dtype.h"
#include "quire/export.h"

namespace quire {

// The element `index` places after `base`, exactly. For 4-bit types `base` is a byte that starts
// with an even element.
QUIRE_API double load_element(const void* base, DType dtype, std::int64_t index);

// Rounds once, to nearest even. fp8 and the integers saturate, f16 and bf16 overflow to infinity;
// NaN stays NaN in the float types and becomes 0 in the integers. e8m0 holds scales: it rounds up to a power of two
// and saturates at both ends.
QUIRE_API void store_element(void* base, DType dtype, std::int64_t index, double value);

// The value that store_element followed by load_element would give.
QUIRE_API double round_to(DType dtype, double value);

// Largest finite magnitude that a float or 8-bit integer type holds: 448 for fp8_e4m3, 127 for i8.
QUIRE_API double max_finite(DType dtype);

}  // namespace quire
