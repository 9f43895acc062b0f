// SPDX-License-Identifier: Apache-2.0
// The int8 product instruction of a target alone, on registers.
#pragma once

#include <cstdint>

#include "cpu/runtime/target_switch.h"

namespace quire::cpu {

// Returns the operations done: two for each product of two int8 numbers.
using Int8Spin = double (*)(std::int64_t rounds);

Int8Spin int8_spin(TargetTag<Target::portable>);
Int8Spin int8_spin(TargetTag<Target::avx2>);
Int8Spin int8_spin(TargetTag<Target::avx512>);
Int8Spin int8_spin(TargetTag<Target::avx512_vnni>);
Int8Spin int8_spin(TargetTag<Target::amx>);
Int8Spin int8_spin(TargetTag<Target::neon>);
Int8Spin int8_spin(TargetTag<Target::neon_bf16>);

inline Int8Spin int8_spin(Target target) {
  return on_target(target, [](auto tag) { return int8_spin(tag); });
}

}  // namespace quire::cpu
