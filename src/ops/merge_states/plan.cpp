// SPDX-License-Identifier: Apache-2.0
#include "cpu/merge_states/merge_states.h"
#include "cuda/hopper/merge_states/launch.h"
#include "ops/merge_states/candidates.h"
#include "reference/merge_states.h"

namespace quire {
namespace ops {
namespace {

using MergeStatesCandidate = Candidate<MergeStatesProblem, MergeStatesArgs>;

template <cpu::Target kTarget> constexpr MergeStatesCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const MergeStatesProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const MergeStatesArgs& args,
                    const Context& context) { cpu::merge_states(args, context, kTarget); }};
}

constexpr MergeStatesCandidate kCandidates[] = {
    {.kernel = "hopper/merge_states",
     .takes = kHopperTakes,
     .refuse = [](const MergeStatesProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const MergeStatesArgs& args,
               const Context& context) { cuda::hopper::merge_states(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/merge_states"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/merge_states"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/merge_states"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/merge_states"),
    on_cpu<cpu::Target::neon>("cpu/neon/merge_states"),
    on_cpu<cpu::Target::portable>("cpu/portable/merge_states"),
    {.kernel = "reference/merge_states",
     .takes = kReferenceTakes,
     .refuse = [](const MergeStatesProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const MergeStatesArgs& args, const Context&) { reference::merge_states(args); }},
};

}  // namespace

CandidateList<MergeStatesProblem, MergeStatesArgs> merge_states_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const MergeStatesProblem& problem, const Context& context) {
  return ops::choose("merge_states", ops::merge_states_candidates(), problem, context);
}

}  // namespace quire
