// SPDX-License-Identifier: Apache-2.0
#include "cpu/remap_sparse_indices/remap_sparse_indices.h"
#include "cuda/hopper/remap_sparse_indices/launch.h"
#include "ops/remap_sparse_indices/candidates.h"
#include "reference/remap_sparse_indices.h"

namespace quire {
namespace ops {
namespace {

using RemapSparseIndicesCandidate = Candidate<RemapSparseIndicesProblem, RemapSparseIndicesArgs>;

template <cpu::Target kTarget>
constexpr RemapSparseIndicesCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const RemapSparseIndicesProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const RemapSparseIndicesArgs& args,
                    const Context& context) { cpu::remap_sparse_indices(args, context, kTarget); }};
}

constexpr RemapSparseIndicesCandidate kCandidates[] = {
    {.kernel = "hopper/remap_sparse_indices",
     .takes = kHopperTakes,
     .refuse =
         [](const RemapSparseIndicesProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const RemapSparseIndicesArgs& args,
               const Context& context) { cuda::hopper::remap_sparse_indices(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/remap_sparse_indices"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/remap_sparse_indices"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/remap_sparse_indices"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/remap_sparse_indices"),
    on_cpu<cpu::Target::neon>("cpu/neon/remap_sparse_indices"),
    on_cpu<cpu::Target::portable>("cpu/portable/remap_sparse_indices"),
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
