// SPDX-License-Identifier: Apache-2.0
#include "ops/remap_sparse_indices/candidates.h"
#include "reference/remap_sparse_indices.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<RemapSparseIndicesProblem, RemapSparseIndicesArgs> kCandidates[] = {
    {.kernel = "reference/remap_sparse_indices",
     .takes = kReferenceTakes,
     .refuse =
         [](const RemapSparseIndicesProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const RemapSparseIndicesArgs& args,
               const Context&) { reference::remap_sparse_indices(args); }},
};

}  // namespace

CandidateList<RemapSparseIndicesProblem, RemapSparseIndicesArgs> remap_sparse_indices_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const RemapSparseIndicesProblem& problem, const Context& context) {
  return ops::choose("remap_sparse_indices", ops::remap_sparse_indices_candidates(), problem,
                     context);
}

}  // namespace quire
