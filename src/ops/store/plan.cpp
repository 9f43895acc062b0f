// SPDX-License-Identifier: Apache-2.0
#include "ops/store/candidates.h"
#include "reference/store.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<StoreProblem, StoreArgs> kStoreCandidates[] = {
    {.kernel = "reference/store",
     .takes = kReferenceTakes,
     .refuse = [](const StoreProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const StoreArgs& args, const Context&) { reference::store(args); }},
};

constexpr Candidate<StoreProblem, StoreScalesArgs> kStoreScalesCandidates[] = {
    {.kernel = "reference/store_scales",
     .takes = kReferenceTakes,
     .refuse = [](const StoreProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const StoreScalesArgs& args, const Context&) { reference::store_scales(args); }},
};

}  // namespace

CandidateList<StoreProblem, StoreArgs> store_candidates() {
  return kStoreCandidates;
}

CandidateList<StoreProblem, StoreScalesArgs> store_scales_candidates() {
  return kStoreScalesCandidates;
}

}  // namespace ops

Plan plan(const StoreProblem& problem, const Context& context) {
  return problem.scales_only
             ? ops::choose("store_scales", ops::store_scales_candidates(), problem, context)
             : ops::choose("store", ops::store_candidates(), problem, context);
}

}  // namespace quire
