// SPDX-License-Identifier: Apache-2.0
#include "cpu/store/store.h"
#include "cuda/hopper/store/launch.h"
#include "ops/store/candidates.h"
#include "reference/store.h"

namespace quire {
namespace ops {
namespace {

constexpr std::string_view kCpuTakes = "any valid problem on a cpu with the target's instructions";

std::string refuse_on_cpu(const StoreProblem& problem, cpu::Target target) {
  const std::string off_host = refuse_off_host(problem.device);
  return off_host.empty() ? cpu::refuse(problem, target) : off_host;
}

using StoreCandidate = Candidate<StoreProblem, StoreArgs>;
using StoreScalesCandidate = Candidate<StoreProblem, StoreScalesArgs>;

template <cpu::Target kTarget> constexpr StoreCandidate rows_on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = kCpuTakes,
          .refuse = [](const StoreProblem& problem) { return refuse_on_cpu(problem, kTarget); },
          .run = [](const StoreArgs& args,
                    const Context& context) { cpu::store(args, context, kTarget); }};
}

template <cpu::Target kTarget>
constexpr StoreScalesCandidate scales_on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = kCpuTakes,
          .refuse = [](const StoreProblem& problem) { return refuse_on_cpu(problem, kTarget); },
          .run = [](const StoreScalesArgs& args,
                    const Context& context) { cpu::store_scales(args, context, kTarget); }};
}

constexpr StoreCandidate kStoreCandidates[] = {
    {.kernel = "hopper/store",
     .takes = kHopperTakes,
     .refuse = [](const StoreProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const StoreArgs& args,
               const Context& context) { cuda::hopper::store(args, context); }},
    rows_on_cpu<cpu::Target::amx>("cpu/amx/store"),
    rows_on_cpu<cpu::Target::avx512>("cpu/avx512/store"),
    rows_on_cpu<cpu::Target::avx2>("cpu/avx2/store"),
    rows_on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/store"),
    rows_on_cpu<cpu::Target::neon>("cpu/neon/store"),
    rows_on_cpu<cpu::Target::portable>("cpu/portable/store"),
    {.kernel = "reference/store",
     .takes = kReferenceTakes,
     .refuse = [](const StoreProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const StoreArgs& args, const Context&) { reference::store(args); }},
};

constexpr StoreScalesCandidate kStoreScalesCandidates[] = {
    {.kernel = "hopper/store_scales",
     .takes = kHopperTakes,
     .refuse = [](const StoreProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const StoreScalesArgs& args,
               const Context& context) { cuda::hopper::store_scales(args, context); }},
    scales_on_cpu<cpu::Target::amx>("cpu/amx/store_scales"),
    scales_on_cpu<cpu::Target::avx512>("cpu/avx512/store_scales"),
    scales_on_cpu<cpu::Target::avx2>("cpu/avx2/store_scales"),
    scales_on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/store_scales"),
    scales_on_cpu<cpu::Target::neon>("cpu/neon/store_scales"),
    scales_on_cpu<cpu::Target::portable>("cpu/portable/store_scales"),
    {.kernel = "reference/store_scales",
     .takes = kReferenceTakes,
     .refuse = [](const StoreProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const StoreScalesArgs& args, const Context&) { reference::store_scales(args); }},
};

}  // namespace

CandidateList<StoreProblem, StoreArgs> store_candidates() {
  return kStoreCandidates;
}

CandidateList<StoreProblem, StoreScalesArgs> store_scales_candidates() {
  return kStoreScalesCandidates;
}

}  // namespace ops

Plan plan(const StoreProblem& problem, const Context& context) {
  return problem.scales_only
             ? ops::choose("store_scales", ops::store_scales_candidates(), problem, context)
             : ops::choose("store", ops::store_candidates(), problem, context);
}

}  // namespace quire
