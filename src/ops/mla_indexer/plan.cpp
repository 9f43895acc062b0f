// SPDX-License-Identifier: Apache-2.0
#include "cpu/mla_indexer/mla_indexer.h"
#include "cuda/hopper/mla_indexer/general/launch.h"
#include "cuda/hopper/mla_indexer/launch.h"
#include "ops/mla_indexer/candidates.h"
#include "reference/mla_indexer.h"

namespace quire {
namespace ops {
namespace {

using MlaIndexerCandidate = Candidate<MlaIndexerProblem, MlaIndexerArgs>;

template <cpu::Target kTarget> constexpr MlaIndexerCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const MlaIndexerProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const MlaIndexerArgs& args,
                    const Context& context) { cpu::mla_indexer(args, context, kTarget); }};
}

constexpr MlaIndexerCandidate kCandidates[] = {
    {.kernel = "hopper/mla_indexer",
     .takes =
         "4, 8, 16, 32 or 64 heads of 64 or 128 columns, pages of a multiple of 16 tokens and a "
         "top_k up to 2048 on a GPU of compute capability 9.0",
     .refuse = [](const MlaIndexerProblem& problem) { return cuda::hopper::refuse_index(problem); },
     .run = [](const MlaIndexerArgs& args,
               const Context& context) { cuda::hopper::mla_indexer(args, context); },
     .workspace_bytes =
         [](const MlaIndexerProblem& problem) {
           return cuda::hopper::index_workspace_bytes(problem);
         },
     .choices = [](const MlaIndexerProblem& problem) -> Choices {
       return cuda::hopper::index_choices(problem);
     }},
    {.kernel = "hopper/general/mla_indexer",
     .takes = kHopperTakes,
     .refuse =
         [](const MlaIndexerProblem& problem) { return cuda::hopper::refuse_general(problem); },
     .run = [](const MlaIndexerArgs& args,
               const Context& context) { cuda::hopper::mla_indexer_general(args, context); },
     .workspace_bytes =
         [](const MlaIndexerProblem& problem) {
           return cuda::hopper::general_workspace_bytes(problem);
         }},
    on_cpu<cpu::Target::amx>("cpu/amx/mla_indexer"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/mla_indexer"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/mla_indexer"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/mla_indexer"),
    on_cpu<cpu::Target::neon>("cpu/neon/mla_indexer"),
    on_cpu<cpu::Target::portable>("cpu/portable/mla_indexer"),
    {.kernel = "reference/mla_indexer",
     .takes = kReferenceTakes,
     .refuse = [](const MlaIndexerProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const MlaIndexerArgs& args, const Context&) { reference::mla_indexer(args); }},
};

}  // namespace

CandidateList<MlaIndexerProblem, MlaIndexerArgs> mla_indexer_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const MlaIndexerProblem& problem, const Context& context) {
  return ops::choose("mla_indexer", ops::mla_indexer_candidates(), problem, context);
}

}  // namespace quire
