// SPDX-License-Identifier: Apache-2.0
#include "cpu/mla_prefill/mla_prefill.h"
#include "cpu/mla_prefill/mla_prefill_plan.h"
#include "cuda/hopper/mla_prefill/general/launch.h"
#include "cuda/hopper/mla_prefill/launch.h"
#include "ops/mla_prefill/candidates.h"
#include "reference/mla_prefill.h"
#include "reference/mla_prefill_plan.h"

namespace quire {
namespace ops {
namespace {

using MlaPrefillCandidate = Candidate<MlaPrefillProblem, MlaPrefillArgs>;

template <cpu::Target kTarget> constexpr MlaPrefillCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const MlaPrefillProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const MlaPrefillArgs& args,
                    const Context& context) { cpu::mla_prefill(args, context, kTarget); }};
}

constexpr MlaPrefillCandidate kCandidates[] = {
    {.kernel = "hopper/mla_prefill",
     .takes =
         "bf16, f16 on sm_90a; heads of 128 + 64 and 128 columns; weights of q's dtype or e4m3; "
         "masks that show one interval of keys",
     .refuse =
         [](const MlaPrefillProblem& problem) { return cuda::hopper::refuse_branch(problem); },
     .run = [](const MlaPrefillArgs& args,
               const Context& context) { cuda::hopper::mla_prefill_branch(args, context); },
     .workspace_bytes =
         [](const MlaPrefillProblem& problem) {
           return cuda::hopper::branch_workspace_bytes(problem);
         }},
    {.kernel = "hopper/general/mla_prefill",
     .takes = kHopperTakes,
     .refuse =
         [](const MlaPrefillProblem& problem) { return cuda::hopper::refuse_general(problem); },
     .run = [](const MlaPrefillArgs& args,
               const Context& context) { cuda::hopper::mla_prefill_general(args, context); },
     .workspace_bytes =
         [](const MlaPrefillProblem& problem) {
           return cuda::hopper::general_workspace_bytes(problem);
         }},
    on_cpu<cpu::Target::amx>("cpu/amx/mla_prefill"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/mla_prefill"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/mla_prefill"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/mla_prefill"),
    on_cpu<cpu::Target::neon>("cpu/neon/mla_prefill"),
    on_cpu<cpu::Target::portable>("cpu/portable/mla_prefill"),
    {.kernel = "reference/mla_prefill",
     .takes = kReferenceTakes,
     .refuse = [](const MlaPrefillProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const MlaPrefillArgs& args, const Context&) { reference::mla_prefill(args); }},
};

using PlanCandidate = Candidate<Device, MlaPrefillPlanArgs>;

template <cpu::Target kTarget> constexpr PlanCandidate plan_on_cpu(std::string_view kernel) {
  return {
      .kernel = kernel,
      .takes = "any valid problem on a cpu with the target's instructions",
      .refuse =
          [](const Device& device) {
            const std::string off_host = refuse_off_host(device);
            return off_host.empty() ? cpu::why_not(kTarget) : off_host;
          },
      .run = [](const MlaPrefillPlanArgs& args, const Context&) { cpu::mla_prefill_plan(args); }};
}

constexpr PlanCandidate kPlanCandidates[] = {
    {.kernel = "hopper/mla_prefill_plan",
     .takes = kHopperTakes,
     .refuse = [](const Device& device) { return cuda::hopper::refuse_plan(device); },
     .run = [](const MlaPrefillPlanArgs& args,
               const Context& context) { cuda::hopper::mla_prefill_plan(args, context); }},
    plan_on_cpu<cpu::Target::amx>("cpu/amx/mla_prefill_plan"),
    plan_on_cpu<cpu::Target::avx512>("cpu/avx512/mla_prefill_plan"),
    plan_on_cpu<cpu::Target::avx2>("cpu/avx2/mla_prefill_plan"),
    plan_on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/mla_prefill_plan"),
    plan_on_cpu<cpu::Target::neon>("cpu/neon/mla_prefill_plan"),
    plan_on_cpu<cpu::Target::portable>("cpu/portable/mla_prefill_plan"),
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
