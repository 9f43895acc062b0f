// SPDX-License-Identifier: Apache-2.0
#include "ops/mla_prefill/candidates.h"
#include "reference/mla_prefill.h"
#include "reference/mla_prefill_plan.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<MlaPrefillProblem, MlaPrefillArgs> kCandidates[] = {
    {.kernel = "reference/mla_prefill",
     .takes = kReferenceTakes,
     .refuse = [](const MlaPrefillProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const MlaPrefillArgs& args, const Context&) { reference::mla_prefill(args); }},
};

constexpr Candidate<Device, MlaPrefillPlanArgs> kPlanCandidates[] = {
    {.kernel = "reference/mla_prefill_plan",
     .takes = kReferenceTakes,
     .refuse = [](const Device& device) { return refuse_off_host(device); },
     .run = [](const MlaPrefillPlanArgs& args,
               const Context&) { reference::mla_prefill_plan(args); }},
};

}  // namespace

CandidateList<MlaPrefillProblem, MlaPrefillArgs> mla_prefill_candidates() {
  return kCandidates;
}

CandidateList<Device, MlaPrefillPlanArgs> mla_prefill_plan_candidates() {
  return kPlanCandidates;
}

}  // namespace ops

Plan plan(const MlaPrefillProblem& problem, const Context& context) {
  return ops::choose("mla_prefill", ops::mla_prefill_candidates(), problem, context);
}

}  // namespace quire
