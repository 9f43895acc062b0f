// SPDX-License-Identifier: Apache-2.0
// mla_prefill_plan and mla_prefill for every valid problem on a GPU: any head count, widths, row
// format, weight type, mask and number of chunks, on fp32 multiply-adds. Starts kernels on the
// context's stream, allocates nothing and never waits: chunks that the plan left unused cost a launch.
//
//   new rows ─ finish ─► pages      q ─ rotate in place
//   for each group of heads, for each chunk:
//     pages ─ gather, quantize ─► latents f32 ─ kv_b_proj ─► K | V in q's dtype ─ attend ─► state
//   the last chunk's attention writes out and LSE instead of the state
#pragma once

#include <cstdint>
#include <string>

#include "core/kernel.h"
#include "quire/ops/mla_prefill.h"

namespace quire::cuda::any::mla_prefill {

void mla_prefill_plan(const MlaPrefillPlanArgs& args, const Context& context);

// Bounded by a group of heads, whose number follows from the chunk's rows.
KernelPtr<MlaPrefillArgs> prepare_general(const MlaPrefillProblem& problem);

}  // namespace quire::cuda::any::mla_prefill
