// SPDX-License-Identifier: Apache-2.0
// About how long work takes on one thread. Only the number of threads that a call is worth follows from these figures
// (Workers::for_nanoseconds); they may be wrong by a factor of two, and no bit depends on them.
#pragma once

#include <cstdint>

#include "cpu/runtime/target.h"
#include "quire/dtype.h"

namespace quire::cpu {

// What a core reads or writes of rows that some cache may hold.
inline constexpr double kBytesPerNanosecond = 16.0;

inline double nanoseconds_of_bytes(double bytes) {
  return bytes / kBytesPerNanosecond;
}

// Products that are added up, of the engine for this dtype: half of what its instructions could do.
constexpr double products_per_nanosecond(Target target, DType dtype) {
  const bool is_bf16 = dtype == DType::bf16;
  switch (target) {
    case Target::amx:
      return is_bf16 ? 400.0 : 40.0;
    case Target::avx512:
      return is_bf16 ? 60.0 : 40.0;
    case Target::avx512_vnni:
      return 30.0;
    case Target::avx2:
      return 20.0;
    case Target::neon_bf16:
      return is_bf16 ? 40.0 : 10.0;
    case Target::neon:
    case Target::portable:
      break;
  }
  return 8.0;
}

}  // namespace quire::cpu
