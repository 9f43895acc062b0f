// SPDX-License-Identifier: Apache-2.0
#include "ops/mla_indexer/candidates.h"
#include "reference/mla_indexer.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<MlaIndexerProblem, MlaIndexerArgs> kCandidates[] = {
    {.kernel = "reference/mla_indexer",
     .takes = kReferenceTakes,
     .refuse = [](const MlaIndexerProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const MlaIndexerArgs& args, const Context&) { reference::mla_indexer(args); }},
};

}  // namespace

CandidateList<MlaIndexerProblem, MlaIndexerArgs> mla_indexer_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const MlaIndexerProblem& problem, const Context& context) {
  return ops::choose("mla_indexer", ops::mla_indexer_candidates(), problem, context);
}

}  // namespace quire
