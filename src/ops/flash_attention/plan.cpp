// SPDX-License-Identifier: Apache-2.0
#include "ops/flash_attention/candidates.h"
#include "reference/flash_attention.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<FlashAttentionProblem, FlashAttentionArgs> kCandidates[] = {
    {.kernel = "reference/flash_attention",
     .takes = kReferenceTakes,
     .refuse = [](const FlashAttentionProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const FlashAttentionArgs& args,
               const Context&) { reference::flash_attention(args); }},
};

}  // namespace

CandidateList<FlashAttentionProblem, FlashAttentionArgs> flash_attention_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const FlashAttentionProblem& problem, const Context& context) {
  return ops::choose("flash_attention", ops::flash_attention_candidates(), problem, context);
}

}  // namespace quire
