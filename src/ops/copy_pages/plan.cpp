// SPDX-License-Identifier: Apache-2.0
#include "cpu/copy_pages/copy_pages.h"
#include "cpu/runtime/target.h"
#include "cuda/hopper/copy_pages/launch.h"
#include "ops/copy_pages/candidates.h"
#include "reference/copy_pages.h"

namespace quire {
namespace ops {
namespace {

using CopyPagesCandidate = Candidate<CopyPagesProblem, CopyPagesArgs>;

// The same code under every target's name: forcing a target covers this op too.
template <cpu::Target kTarget> constexpr CopyPagesCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const CopyPagesProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::why_not(kTarget) : off_host;
              },
          .run = [](const CopyPagesArgs& args,
                    const Context& context) { cpu::copy_pages(args, context); }};
}

constexpr CopyPagesCandidate kCandidates[] = {
    {.kernel = "hopper/copy_pages",
     .takes = kHopperTakes,
     .refuse = [](const CopyPagesProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const CopyPagesArgs& args,
               const Context& context) { cuda::hopper::copy_pages(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/copy_pages"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/copy_pages"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/copy_pages"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/copy_pages"),
    on_cpu<cpu::Target::neon>("cpu/neon/copy_pages"),
    on_cpu<cpu::Target::portable>("cpu/portable/copy_pages"),
    {.kernel = "reference/copy_pages",
     .takes = kReferenceTakes,
     .refuse = [](const CopyPagesProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const CopyPagesArgs& args, const Context&) { reference::copy_pages(args); }},
};

}  // namespace

CandidateList<CopyPagesProblem, CopyPagesArgs> copy_pages_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const CopyPagesProblem& problem, const Context& context) {
  return ops::choose("copy_pages", ops::copy_pages_candidates(), problem, context);
}

}  // namespace quire
