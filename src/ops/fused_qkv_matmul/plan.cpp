// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_qkv_matmul/candidates.h"
#include "reference/fused_qkv_matmul.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<FusedQkvProblem, FusedQkvArgs> kCandidates[] = {
    {.kernel = "reference/fused_qkv_matmul",
     .takes = kReferenceTakes,
     .refuse = [](const FusedQkvProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const FusedQkvArgs& args, const Context&) { reference::fused_qkv_matmul(args); }},
};

}  // namespace

CandidateList<FusedQkvProblem, FusedQkvArgs> fused_qkv_matmul_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const FusedQkvProblem& problem, const Context& context) {
  return ops::choose("fused_qkv_matmul", ops::fused_qkv_matmul_candidates(), problem, context);
}

}  // namespace quire
