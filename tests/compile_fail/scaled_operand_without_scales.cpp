// SPDX-License-Identifier: Apache-2.0
// A config with a granularity needs the scales.
// expect: no matching .*ContiguousOperand
#include "quire/contiguous_operand.h"

#if defined(QUIRE_MUST_FAIL)
constexpr quire::KvOperandConfig kConfig{.granularity = 128};
#else
constexpr quire::KvOperandConfig kConfig{};
#endif

quire::ContiguousOperand<kConfig> operand_of(const quire::TensorView& values) {
  return quire::ContiguousOperand<kConfig>(values);
}
