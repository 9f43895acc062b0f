// SPDX-License-Identifier: Apache-2.0
#include "ops/sparse_mla/candidates.h"
#include "reference/sparse_mla.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<SparseMlaProblem, SparseMlaArgs> kCandidates[] = {
    {.kernel = "reference/sparse_mla",
     .takes = kReferenceTakes,
     .refuse = [](const SparseMlaProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const SparseMlaArgs& args, const Context&) { reference::sparse_mla(args); }},
};

}  // namespace

CandidateList<SparseMlaProblem, SparseMlaArgs> sparse_mla_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const SparseMlaProblem& problem, const Context& context) {
  return ops::choose("sparse_mla", ops::sparse_mla_candidates(), problem, context);
}

}  // namespace quire
