// SPDX-License-Identifier: Apache-2.0
#include "cpu/row_offsets/row_offsets.h"
#include "cpu/runtime/target.h"
#include "cuda/hopper/row_offsets/launch.h"
#include "ops/row_offsets/candidates.h"
#include "reference/row_offsets.h"

namespace quire {
namespace ops {
namespace {

using RowOffsetsCandidate = Candidate<RowOffsetsProblem, RowOffsetsArgs>;

// The same code under every target's name: forcing a target covers this op too.
template <cpu::Target kTarget> constexpr RowOffsetsCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const RowOffsetsProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::why_not(kTarget) : off_host;
              },
          .run = [](const RowOffsetsArgs& args, const Context&) { cpu::row_offsets(args); }};
}

constexpr RowOffsetsCandidate kCandidates[] = {
    {.kernel = "hopper/row_offsets",
     .takes = kHopperTakes,
     .refuse = [](const RowOffsetsProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const RowOffsetsArgs& args,
               const Context& context) { cuda::hopper::row_offsets(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/row_offsets"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/row_offsets"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/row_offsets"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/row_offsets"),
    on_cpu<cpu::Target::neon>("cpu/neon/row_offsets"),
    on_cpu<cpu::Target::portable>("cpu/portable/row_offsets"),
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
