// SPDX-License-Identifier: Apache-2.0
#include "cpu/rope/rope.h"
#include "cuda/hopper/rope/launch.h"
#include "ops/rope/candidates.h"
#include "reference/rope.h"

namespace quire {
namespace ops {
namespace {

using RopeCandidate = Candidate<RopeProblem, RopeArgs>;

template <cpu::Target kTarget> constexpr RopeCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const RopeProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const RopeArgs& args,
                    const Context& context) { cpu::rope(args, context, kTarget); }};
}

constexpr RopeCandidate kCandidates[] = {
    {.kernel = "hopper/rope",
     .takes = kHopperTakes,
     .refuse = [](const RopeProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const RopeArgs& args,
               const Context& context) { cuda::hopper::rope(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/rope"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/rope"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/rope"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/rope"),
    on_cpu<cpu::Target::neon>("cpu/neon/rope"),
    on_cpu<cpu::Target::portable>("cpu/portable/rope"),
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
