// SPDX-License-Identifier: Apache-2.0
// The instruction sets that kernels are compiled for. src/cpu/kernels/*.cpp is compiled once per
// target, each time in namespace quire::cpu::<target>; which one runs is decided here, at run time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quire::cpu {

enum class Target : std::uint8_t {
  portable,     // 128-bit vectors that nearly every machine has: x86-64-v2, armv8-a
  avx2,         // AVX2, FMA, F16C, BMI2
  avx512_vnni,  // AVX-512 F/BW/DQ/VL, VNNI: Cascade Lake, Ice Lake
  avx512,       // the same and BF16: Cooper Lake, Zen 4
  amx,          // avx512 and AMX tiles, bf16 and int8
  neon,         // armv8-a
  neon_bf16,    // armv8.2-a with bf16, i8mm, dotprod: BFMMLA, SMMLA
};

std::string_view name(Target target);
std::optional<Target> target_from_name(std::string_view text);

// Those this build contains, best first.
std::span<const Target> compiled_targets();

// Empty if the target may run here; otherwise why not: not compiled in this build,
// instructions missing, AMX refused by the system, or another one forced by QUIRE_CPU_TARGET. Throws
// Error where that names none that may run here.
std::string why_not(Target target);
// QUIRE_CPU_TARGET as it is now, on which why_not() depends; empty: not set.
std::string_view forced_target_name();

}  // namespace quire::cpu
