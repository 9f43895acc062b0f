// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm/candidates.h"
#include "reference/rms_norm.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<RmsNormProblem, RmsNormArgs> kCandidates[] = {
    {.kernel = "reference/rms_norm",
     .takes = kReferenceTakes,
     .refuse = [](const RmsNormProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const RmsNormArgs& args, const Context&) { reference::rms_norm(args); }},
};

}  // namespace

CandidateList<RmsNormProblem, RmsNormArgs> rms_norm_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const RmsNormProblem& problem, const Context& context) {
  return ops::choose(ops::rms_norm_name(problem.side), ops::rms_norm_candidates(), problem,
                     context);
}

}  // namespace quire
