// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/candidates.h"
#include "reference/rope.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<RopeProblem, RopeArgs> kCandidates[] = {
    {.kernel = "reference/rope",
     .takes = kReferenceTakes,
     .refuse = [](const RopeProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const RopeArgs& args, const Context&) { reference::rope(args); }},
};

}  // namespace

CandidateList<RopeProblem, RopeArgs> rope_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const RopeProblem& problem, const Context& context) {
  return ops::choose("rope", ops::rope_candidates(), problem, context);
}

}  // namespace quire
