// SPDX-License-Identifier: Apache-2.0
#include "ops/quantize_fp8/candidates.h"
#include "reference/quantize_fp8.h"

namespace quire {
namespace ops {
namespace {

constexpr Candidate<QuantizeFp8Problem, QuantizeFp8Args> kCandidates[] = {
    {.kernel = "reference/quantize_fp8",
     .takes = kReferenceTakes,
     .refuse = [](const QuantizeFp8Problem& problem) { return refuse_off_host(problem.device); },
     .run = [](const QuantizeFp8Args& args, const Context&) { reference::quantize_fp8(args); }},
};

}  // namespace

CandidateList<QuantizeFp8Problem, QuantizeFp8Args> quantize_fp8_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const QuantizeFp8Problem& problem, const Context& context) {
  return ops::choose("quantize_fp8", ops::quantize_fp8_candidates(), problem, context);
}

}  // namespace quire
