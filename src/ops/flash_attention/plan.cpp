// SPDX-License-Identifier: Apache-2.0
#include "cpu/flash_attention/flash_attention.h"
#include "cuda/hopper/flash_attention/cascade/launch.h"
#include "cuda/hopper/flash_attention/decode/launch.h"
#include "cuda/hopper/flash_attention/general/launch.h"
#include "cuda/hopper/flash_attention/prefill/launch.h"
#include "ops/flash_attention/candidates.h"
#include "reference/flash_attention.h"

namespace quire {
namespace ops {
namespace {

using FlashAttentionCandidate = Candidate<FlashAttentionProblem, FlashAttentionArgs>;

template <cpu::Target kTarget> constexpr FlashAttentionCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const FlashAttentionProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const FlashAttentionArgs& args,
                    const Context& context) { cpu::flash_attention(args, context, kTarget); }};
}

constexpr FlashAttentionCandidate kCandidates[] = {
    {.kernel = "hopper/cascade/flash_attention",
     .takes = "shared_prefix_pages of two sequences or more, causal or all keys, what "
              "hopper/decode/flash_attention or hopper/flash_attention take",
     .refuse =
         [](const FlashAttentionProblem& problem) { return cuda::hopper::refuse_cascade(problem); },
     .run = [](const FlashAttentionArgs& args,
               const Context& context) { cuda::hopper::flash_attention_cascade(args, context); },
     .workspace_bytes = cuda::hopper::cascade_workspace_bytes,
     .choices = cuda::hopper::cascade_choices},
    {.kernel = "hopper/decode/flash_attention",
     .takes =
         "bf16 and f16 over an unscaled cache of the same or of e4m3, with a scale for each KV "
         "head "
         "or none, at most 16 new tokens of a sequence, heads up to 128 wide, masks that show one "
         "interval of keys and a tree in it, on a GPU of compute capability 9.0",
     .refuse =
         [](const FlashAttentionProblem& problem) { return cuda::hopper::refuse_decode(problem); },
     .run = [](const FlashAttentionArgs& args,
               const Context& context) { cuda::hopper::flash_attention_decode(args, context); },
     .workspace_bytes = cuda::hopper::decode_workspace_bytes,
     .choices = cuda::hopper::decode_choices},
    {.kernel = "hopper/flash_attention",
     .takes =
         "bf16 and f16 over an unscaled cache of the same or of e4m3, bf16 over any other where a "
         "16-bit copy of the keys fits into 1 GiB, masks that show one interval of keys, pages of "
         "a "
         "multiple of 8, on a GPU of compute capability 9.0",
     .refuse =
         [](const FlashAttentionProblem& problem) { return cuda::hopper::refuse_tiles(problem); },
     .run = [](const FlashAttentionArgs& args,
               const Context& context) { cuda::hopper::flash_attention_prefill(args, context); },
     .workspace_bytes = cuda::hopper::prefill_workspace_bytes,
     .choices = cuda::hopper::prefill_choices},
    {.kernel = "hopper/general/flash_attention",
     .takes = kHopperTakes,
     .refuse =
         [](const FlashAttentionProblem& problem) { return cuda::hopper::refuse_general(problem); },
     .run = [](const FlashAttentionArgs& args,
               const Context& context) { cuda::hopper::flash_attention_general(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/flash_attention"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/flash_attention"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/flash_attention"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/flash_attention"),
    on_cpu<cpu::Target::neon>("cpu/neon/flash_attention"),
    on_cpu<cpu::Target::portable>("cpu/portable/flash_attention"),
    {.kernel = "reference/flash_attention",
     .takes = kReferenceTakes,
     .refuse = [](const FlashAttentionProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const FlashAttentionArgs& args,
               const Context&) { reference::flash_attention(args); }},
};

}  // namespace

CandidateList<FlashAttentionProblem, FlashAttentionArgs> flash_attention_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const FlashAttentionProblem& problem, const Context& context) {
  return ops::choose("flash_attention", ops::flash_attention_candidates(), problem, context);
}

}  // namespace quire
