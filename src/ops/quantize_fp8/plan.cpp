// SPDX-License-Identifier: Apache-2.0
#include "cpu/quantize_fp8/quantize_fp8.h"
#include "cuda/hopper/quantize_fp8/launch.h"
#include "ops/quantize_fp8/candidates.h"
#include "reference/quantize_fp8.h"

namespace quire {
namespace ops {
namespace {

using QuantizeFp8Candidate = Candidate<QuantizeFp8Problem, QuantizeFp8Args>;

template <cpu::Target kTarget> constexpr QuantizeFp8Candidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const QuantizeFp8Problem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const QuantizeFp8Args& args,
                    const Context& context) { cpu::quantize_fp8(args, context, kTarget); }};
}

constexpr QuantizeFp8Candidate kCandidates[] = {
    {.kernel = "hopper/quantize_fp8",
     .takes = kHopperTakes,
     .refuse = [](const QuantizeFp8Problem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const QuantizeFp8Args& args,
               const Context& context) { cuda::hopper::quantize_fp8(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/quantize_fp8"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/quantize_fp8"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/quantize_fp8"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/quantize_fp8"),
    on_cpu<cpu::Target::neon>("cpu/neon/quantize_fp8"),
    on_cpu<cpu::Target::portable>("cpu/portable/quantize_fp8"),
    {.kernel = "reference/quantize_fp8",
     .takes = kReferenceTakes,
     .refuse = [](const QuantizeFp8Problem& problem) { return refuse_off_host(problem.device); },
     .run = [](const QuantizeFp8Args& args, const Context&) { reference::quantize_fp8(args); }},
};

}  // namespace

CandidateList<QuantizeFp8Problem, QuantizeFp8Args> quantize_fp8_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const QuantizeFp8Problem& problem, const Context& context) {
  return ops::choose("quantize_fp8", ops::quantize_fp8_candidates(), problem, context);
}

}  // namespace quire
