// SPDX-License-Identifier: Apache-2.0
#include "cpu/index_rows/index_rows.h"
#include "cuda/hopper/index_rows/launch.h"
#include "ops/quantize_index_queries/candidates.h"
#include "reference/index_rows.h"

namespace quire {
namespace ops {
namespace {

using QuantizeIndexQueriesCandidate =
    Candidate<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs>;

template <cpu::Target kTarget>
constexpr QuantizeIndexQueriesCandidate on_cpu(std::string_view kernel) {
  return {
      .kernel = kernel,
      .takes = "any valid problem on a cpu with the target's instructions",
      .refuse =
          [](const QuantizeIndexQueriesProblem& problem) {
            const std::string off_host = refuse_off_host(problem.device);
            return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
          },
      .run = [](const QuantizeIndexQueriesArgs& args,
                const Context& context) { cpu::quantize_index_queries(args, context, kTarget); }};
}

constexpr QuantizeIndexQueriesCandidate kCandidates[] = {
    {.kernel = "hopper/quantize_index_queries",
     .takes = "rows of up to 8192 columns on a GPU of compute capability 9.0",
     .refuse =
         [](const QuantizeIndexQueriesProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const QuantizeIndexQueriesArgs& args,
               const Context& context) { cuda::hopper::quantize_index_queries(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/quantize_index_queries"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/quantize_index_queries"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/quantize_index_queries"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/quantize_index_queries"),
    on_cpu<cpu::Target::neon>("cpu/neon/quantize_index_queries"),
    on_cpu<cpu::Target::portable>("cpu/portable/quantize_index_queries"),
    {.kernel = "reference/quantize_index_queries",
     .takes = kReferenceTakes,
     .refuse =
         [](const QuantizeIndexQueriesProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const QuantizeIndexQueriesArgs& args,
               const Context&) { reference::quantize_index_queries(args); }},
};

}  // namespace

CandidateList<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs>
quantize_index_queries_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const QuantizeIndexQueriesProblem& problem, const Context& context) {
  return ops::choose("quantize_index_queries", ops::quantize_index_queries_candidates(), problem,
                     context);
}

}  // namespace quire
