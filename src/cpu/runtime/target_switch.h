// SPDX-License-Identifier: Apache-2.0
// From a target known at run time to the code compiled for it. A kernel family declares one
// overload per target,
//
//   const TileKernels& tile_kernels(TargetTag<Target::amx>);
//
// src/cpu/kernels/<family>.cpp defines that of the target it is being compiled for, and on_target
// picks. Which there are is CMake's choice (QUIRE_CPU_TARGETS), known here as QUIRE_HAS_<TARGET>.
#pragma once

#include "cpu/runtime/target.h"

namespace quire::cpu {

template <Target kTarget> struct TargetTag {};

// The target must be one that why_not lets run; one that is not compiled gives the portable code.
template <typename Function> decltype(auto) on_target(Target target, Function&& function) {
  switch (target) {
#if defined(QUIRE_HAS_AMX)
    case Target::amx:
      return function(TargetTag<Target::amx>{});
#endif
#if defined(QUIRE_HAS_AVX512)
    case Target::avx512:
      return function(TargetTag<Target::avx512>{});
#endif
#if defined(QUIRE_HAS_AVX512_VNNI)
    case Target::avx512_vnni:
      return function(TargetTag<Target::avx512_vnni>{});
#endif
#if defined(QUIRE_HAS_AVX2)
    case Target::avx2:
      return function(TargetTag<Target::avx2>{});
#endif
#if defined(QUIRE_HAS_NEON_BF16)
    case Target::neon_bf16:
      return function(TargetTag<Target::neon_bf16>{});
#endif
#if defined(QUIRE_HAS_NEON)
    case Target::neon:
      return function(TargetTag<Target::neon>{});
#endif
    default:
      return function(TargetTag<Target::portable>{});
  }
}

}  // namespace quire::cpu
