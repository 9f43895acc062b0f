// SPDX-License-Identifier: Apache-2.0
#include "cpu/mla_decode/mla_decode.h"
#include "cuda/hopper/mla_decode/general/launch.h"
#include "cuda/hopper/mla_decode/launch.h"
#include "ops/mla_decode/candidates.h"
#include "reference/mla_decode.h"

namespace quire {
namespace ops {
namespace {

using MlaDecodeCandidate = Candidate<MlaDecodeProblem, MlaDecodeArgs>;

template <cpu::Target kTarget> constexpr MlaDecodeCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const MlaDecodeProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const MlaDecodeArgs& args,
                    const Context& context) { cpu::mla_decode(args, context, kTarget); }};
}

constexpr MlaDecodeCandidate kCandidates[] = {
    {.kernel = "hopper/mla_decode",
     .takes =
         "bf16 q of at most 128 heads, absorbed or with weights of bf16 or e4m3, over bf16 rows of "
         "512 + 64 columns, pages of a multiple of 16 tokens, masks that show one interval of "
         "keys, on a GPU of compute capability 9.0",
     .refuse = cuda::hopper::refuse_mla_decode_bf16,
     .run = cuda::hopper::mla_decode_latent,
     .workspace_bytes = cuda::hopper::mla_decode_workspace_bytes,
     .choices = cuda::hopper::mla_decode_choices},
    {.kernel = "hopper/fp8/mla_decode",
     .takes = "as hopper/mla_decode, over rows of e4m3 of 576, 640 or 656 bytes",
     .refuse = cuda::hopper::refuse_mla_decode_fp8,
     .run = cuda::hopper::mla_decode_latent,
     .workspace_bytes = cuda::hopper::mla_decode_workspace_bytes,
     .choices = cuda::hopper::mla_decode_choices},
    {.kernel = "hopper/general/mla_decode",
     .takes = kHopperTakes,
     .refuse =
         [](const MlaDecodeProblem& problem) { return cuda::hopper::refuse_general(problem); },
     .run = [](const MlaDecodeArgs& args,
               const Context& context) { cuda::hopper::mla_decode_general(args, context); },
     .workspace_bytes =
         [](const MlaDecodeProblem& problem) {
           return cuda::hopper::general_workspace_bytes(problem);
         }},
    on_cpu<cpu::Target::amx>("cpu/amx/mla_decode"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/mla_decode"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/mla_decode"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/mla_decode"),
    on_cpu<cpu::Target::neon>("cpu/neon/mla_decode"),
    on_cpu<cpu::Target::portable>("cpu/portable/mla_decode"),
    {.kernel = "reference/mla_decode",
     .takes = kReferenceTakes,
     .refuse = [](const MlaDecodeProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const MlaDecodeArgs& args, const Context&) { reference::mla_decode(args); }},
};

}  // namespace

CandidateList<MlaDecodeProblem, MlaDecodeArgs> mla_decode_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const MlaDecodeProblem& problem, const Context& context) {
  return ops::choose("mla_decode", ops::mla_decode_candidates(), problem, context);
}

}  // namespace quire
