// SPDX-License-Identifier: Apache-2.0
// What this processor and its operating system allow. Built without ISA flags: it must run
// everywhere.
#pragma once

namespace quire::cpu {

struct CpuFeatures {
  bool x86_64_v2 = false;  // SSSE3, SSE4.2, POPCNT
  bool avx2 = false;       // with FMA, F16C, BMI and BMI2
  bool avx512 = false;     // F, BW, DQ, VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;
  bool amx_bf16 = false;  // and the kernel granted the tile state to this process
  bool amx_int8 = false;
  bool neon = false;
  bool neon_dotprod = false;
  bool neon_i8mm = false;
  bool neon_bf16 = false;
};

// Probed once. Asks Linux for the AMX tile state on the way (threads inherit it).
const CpuFeatures& cpu_features();

}  // namespace quire::cpu
