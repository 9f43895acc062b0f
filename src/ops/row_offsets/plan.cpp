// SPDX-License-Identifier: Apache-2.0
#include "ops/row_offsets/candidates.h"
#include "reference/row_offsets.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<RowOffsetsProblem, RowOffsetsArgs> kCandidates[] = {
    {.kernel = "reference/row_offsets",
     .takes = kReferenceTakes,
     .refuse = [](const RowOffsetsProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const RowOffsetsArgs& args, const Context&) { reference::row_offsets(args); }},
};

}  // namespace

CandidateList<RowOffsetsProblem, RowOffsetsArgs> row_offsets_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const RowOffsetsProblem& problem, const Context& context) {
  return ops::choose("row_offsets", ops::row_offsets_candidates(), problem, context);
}

}  // namespace quire
