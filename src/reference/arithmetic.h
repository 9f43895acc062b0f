// SPDX-License-Identifier: Apache-2.0
// How the oracle rounds between its steps. `exact` is the oracle proper: double everywhere, and
// only the rounding points that an op's header names. `naive` is what the tolerance rule measures a
// kernel against: the same formulas as an eager evaluation would run them, every intermediate
// tensor in the dtype of the op's input and every sum in fp32, term by term.
#pragma once

#include <cstdint>
#include <span>

#include "quire/dtype.h"
#include "quire/element.h"

namespace quire::reference {

enum class Arithmetic : std::uint8_t { exact, naive };

// An intermediate result that an eager evaluation would keep in a tensor of `dtype`.
inline double intermediate(Arithmetic arithmetic, DType dtype, double value) {
  return arithmetic == Arithmetic::exact ? value : round_to(dtype, value);
}

// A scalar that an eager evaluation would keep in a register: fp32.
inline double in_register(Arithmetic arithmetic, double value) {
  return arithmetic == Arithmetic::exact ? value : static_cast<float>(value);
}

// left · right.
double dot(Arithmetic arithmetic, std::span<const double> left, std::span<const double> right);

}  // namespace quire::reference
