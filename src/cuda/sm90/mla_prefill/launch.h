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

#include <string>

#include "core/kernel.h"
#include "quire/ops/mla_prefill.h"

namespace quire::cuda::sm90::mla_prefill {

// Empty, or why not; any/mla_prefill/launch.h takes the others.
std::string refuse_branch(const MlaPrefillProblem& problem);
// Its workspace is bounded by a group of heads, whose number follows from the chunk's rows.
KernelPtr<MlaPrefillArgs> prepare_branch(const MlaPrefillProblem& problem);

}  // namespace quire::cuda::sm90::mla_prefill
