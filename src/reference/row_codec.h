// SPDX-License-Identifier: Apache-2.0
// A whole row of an operand, as logical values, to and from any row format: ops write rows only here.
//
// Columns that share a scale form a granule. Its scale is amax / max_finite over the columns of
// parts of 8 bits or fewer, rounded to the scale's dtype before anything is divided by it. Where that is 0:
//   - a granule of 8-bit columns alone gets scale 0, and zeros are stored;
//   - a granule with wider columns gets scale 1: the rope part of the 640-byte MLA row is stored
//     divided by the latent's scale, and must survive a latent of zeros.
// e8m0 scales round up, and are at least those that quantize_fp8 gives zeros: never 0.
// In u4 the scale is (highest - lowest value) / 15 and the lowest value is the zero, each rounded to the scale's
// dtype before a value becomes (value - zero) / scale.
// NaN does not count for either and stays NaN (0 in i8 and i4, code 0 in u4). A static scale is read instead
// and never written. Columns without a scale are rounded as they are, fp8 saturating.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/kv_operand.h"
#include "reference/arithmetic.h"

namespace quire::reference {

// Writes values [width] to the row of a token, with its dynamic scales. Dropped if it has no memory.
// reach [width], or empty: how far fp32 arithmetic may have brought a value.
void encode_row(const KvOperandRef& rows, std::int64_t sequence, std::int64_t head,
                std::int64_t token, std::span<const double> values,
                std::span<const double> reach = {}, Arithmetic arithmetic = {});

// The values [width] of a row: stored numbers times their scales, zeros if it has no memory.
std::vector<double> decode_row(const KvOperandRef& rows, std::int64_t sequence, std::int64_t head,
                               std::int64_t token);

}  // namespace quire::reference
