// SPDX-License-Identifier: Apache-2.0
// mla_prefill on tensor cores, sm_90a, as the ops layer sees it: no CUDA headers. Starts kernels on
// the context's stream, allocates nothing and never waits.
//
//   new rows ─ finish ─► pages      q ─ rotate in place
//   for each group of heads, for each chunk:
//     pages ─ gather (quantize) ─► latents ─ kv_b_proj ─► K | V in q's dtype ┐
//                               └► rope columns ─────────────────────────────┴ attend ─► out, LSE
//   more than one chunk: sums are kept in fp32 between them
#pragma once

#include <cstdint>
#include <string>

#include "quire/ops/mla_prefill.h"

namespace quire::cuda::hopper {

// Empty, or why not; general/launch.h takes the others.
std::string refuse_branch(const MlaPrefillProblem& problem);
// Bounded by a group of heads, whose number follows from the chunk's rows.
std::int64_t branch_workspace_bytes(const MlaPrefillProblem& problem);
void mla_prefill_branch(const MlaPrefillArgs& args, const Context& context);

}  // namespace quire::cuda::hopper
