// SPDX-License-Identifier: Apache-2.0
#include "cpu/sparse_mla/sparse_mla.h"
#include "cuda/hopper/sparse_mla/general/launch.h"
#include "cuda/hopper/sparse_mla/launch.h"
#include "ops/sparse_mla/candidates.h"
#include "reference/sparse_mla.h"

namespace quire {
namespace ops {
namespace {

using SparseMlaCandidate = Candidate<SparseMlaProblem, SparseMlaArgs>;

template <cpu::Target kTarget> constexpr SparseMlaCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const SparseMlaProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const SparseMlaArgs& args,
                    const Context& context) { cpu::sparse_mla(args, context, kTarget); }};
}

constexpr SparseMlaCandidate kCandidates[] = {
    {.kernel = "hopper/sparse_mla",
     .takes =
         "bf16 q over rows of 512 + 64 columns in bf16 or e4m3, on a GPU of compute capability "
         "9.0",
     .refuse = [](const SparseMlaProblem& problem) { return cuda::hopper::refuse_sparse(problem); },
     .run = [](const SparseMlaArgs& args,
               const Context& context) { cuda::hopper::sparse_mla_tiles(args, context); },
     .workspace_bytes = cuda::hopper::sparse_workspace_bytes,
     .choices = cuda::hopper::sparse_choices},
    {.kernel = "hopper/general/sparse_mla",
     .takes = kHopperTakes,
     .refuse =
         [](const SparseMlaProblem& problem) { return cuda::hopper::refuse_general(problem); },
     .run = [](const SparseMlaArgs& args,
               const Context& context) { cuda::hopper::sparse_mla_general(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/sparse_mla"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/sparse_mla"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/sparse_mla"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/sparse_mla"),
    on_cpu<cpu::Target::neon>("cpu/neon/sparse_mla"),
    on_cpu<cpu::Target::portable>("cpu/portable/sparse_mla"),
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
