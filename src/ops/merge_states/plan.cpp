// SPDX-License-Identifier: Apache-2.0
#include "ops/merge_states/candidates.h"
#include "reference/merge_states.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<MergeStatesProblem, MergeStatesArgs> kCandidates[] = {
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
