// SPDX-License-Identifier: Apache-2.0
#include "cpu/rms_norm/rms_norm.h"
#include "cuda/hopper/rms_norm/launch.h"
#include "ops/rms_norm/candidates.h"
#include "reference/rms_norm.h"

namespace quire {
namespace ops {
namespace {

using RmsNormCandidate = Candidate<RmsNormProblem, RmsNormArgs>;

template <cpu::Target kTarget> constexpr RmsNormCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const RmsNormProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const RmsNormArgs& args,
                    const Context& context) { cpu::rms_norm(args, context, kTarget); }};
}

constexpr RmsNormCandidate kCandidates[] = {
    {.kernel = "hopper/rms_norm",
     .takes = kHopperTakes,
     .refuse = [](const RmsNormProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const RmsNormArgs& args,
               const Context& context) { cuda::hopper::rms_norm(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/rms_norm"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/rms_norm"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/rms_norm"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/rms_norm"),
    on_cpu<cpu::Target::neon>("cpu/neon/rms_norm"),
    on_cpu<cpu::Target::portable>("cpu/portable/rms_norm"),
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
