// SPDX-License-Identifier: Apache-2.0
#include "cpu/fused_qkv_matmul/fused_qkv_matmul.h"
#include "cuda/hopper/fused_qkv_matmul/general/launch.h"
#include "cuda/hopper/fused_qkv_matmul/int4/launch.h"
#include "cuda/hopper/fused_qkv_matmul/launch.h"
#include "ops/fused_qkv_matmul/candidates.h"
#include "reference/fused_qkv_matmul.h"

namespace quire {
namespace ops {
namespace {

using FusedQkvCandidate = Candidate<FusedQkvProblem, FusedQkvArgs>;

template <cpu::Target kTarget> constexpr FusedQkvCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const FusedQkvProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const FusedQkvArgs& args,
                    const Context& context) { cpu::fused_qkv_matmul(args, context, kTarget); }};
}

std::string refuse_reference(const FusedQkvProblem& problem) {
  if (problem.weight_packing != WeightPacking::none) {
    return fmt::format("the weight is packed as {}, the reference reads plain weights",
                       name(problem.weight_packing));
  }
  return refuse_off_host(problem.device);
}

constexpr FusedQkvCandidate kCandidates[] = {
    {.kernel = "hopper/fused_qkv_matmul",
     .takes = "bf16, f16, e4m3 or allowed tf32 products of aligned rows on Hopper",
     .refuse = [](const FusedQkvProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const FusedQkvArgs& args,
               const Context& context) { cuda::hopper::fused_qkv_matmul(args, context); },
     .workspace_bytes =
         [](const FusedQkvProblem& problem) { return cuda::hopper::tile_workspace_bytes(problem); },
     .choices = [](const FusedQkvProblem& problem) { return cuda::hopper::choices(problem); }},
    {.kernel = "hopper/int4/fused_qkv_matmul",
     .takes = "packed int4, gptq or awq weights, bf16 or f16 x on Hopper",
     .refuse = [](const FusedQkvProblem& problem) { return cuda::hopper::refuse_int4(problem); },
     .run = [](const FusedQkvArgs& args,
               const Context& context) { cuda::hopper::fused_qkv_int4(args, context); },
     .workspace_bytes =
         [](const FusedQkvProblem& problem) { return cuda::hopper::int4_workspace_bytes(problem); },
     .choices = [](const FusedQkvProblem& problem) { return cuda::hopper::int4_choices(problem); }},
    {.kernel = "hopper/general/fused_qkv_matmul",
     .takes = kHopperTakes,
     .refuse = [](const FusedQkvProblem& problem) { return cuda::hopper::refuse_general(problem); },
     .run = [](const FusedQkvArgs& args,
               const Context& context) { cuda::hopper::fused_qkv_general(args, context); },
     .workspace_bytes =
         [](const FusedQkvProblem& problem) {
           return cuda::hopper::general_workspace_bytes(problem);
         }},
    on_cpu<cpu::Target::amx>("cpu/amx/fused_qkv_matmul"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/fused_qkv_matmul"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/fused_qkv_matmul"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/fused_qkv_matmul"),
    on_cpu<cpu::Target::neon>("cpu/neon/fused_qkv_matmul"),
    on_cpu<cpu::Target::portable>("cpu/portable/fused_qkv_matmul"),
    {.kernel = "reference/fused_qkv_matmul",
     .takes = kReferenceTakes,
     .refuse = refuse_reference,
     .run = [](const FusedQkvArgs& args, const Context&) { reference::fused_qkv_matmul(args); }},
};

}  // namespace

CandidateList<FusedQkvProblem, FusedQkvArgs> fused_qkv_matmul_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const FusedQkvProblem& problem, const Context& context) {
  return ops::choose("fused_qkv_matmul", ops::fused_qkv_matmul_candidates(), problem, context);
}

}  // namespace quire
