// SPDX-License-Identifier: Apache-2.0
// What this machine can do, measured: the ceilings that shares are taken of. Each takes a fraction
// of a second and reports the best of several tries, so that a busy neighbour does not lower it.
#pragma once

#include "cpu/runtime/target.h"
#include "quire/dtype.h"

namespace quire::cpu {

// GFLOP/s of the target's product instruction on registers, for f32, bf16 or i8 (then GOP/s), all
// threads together.
double probe_gflops(Target target, DType dtype, int num_threads);

// GB/s of reading memory that no cache holds, all threads together.
double probe_read_gbs(int num_threads);

}  // namespace quire::cpu
