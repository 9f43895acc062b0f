// SPDX-License-Identifier: Apache-2.0
#include "ops/mla_decode/candidates.h"
#include "reference/mla_decode.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<MlaDecodeProblem, MlaDecodeArgs> kCandidates[] = {
    {.kernel = "reference/mla_decode",
     .takes = kReferenceTakes,
     .refuse = [](const MlaDecodeProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const MlaDecodeArgs& args, const Context&) { reference::mla_decode(args); }},
};

}  // namespace

CandidateList<MlaDecodeProblem, MlaDecodeArgs> mla_decode_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const MlaDecodeProblem& problem, const Context& context) {
  return ops::choose("mla_decode", ops::mla_decode_candidates(), problem, context);
}

}  // namespace quire
