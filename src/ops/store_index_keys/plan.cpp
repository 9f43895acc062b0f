// SPDX-License-Identifier: Apache-2.0
#include "cpu/index_rows/index_rows.h"
#include "cuda/hopper/index_rows/launch.h"
#include "ops/store_index_keys/candidates.h"
#include "reference/index_rows.h"

namespace quire {
namespace ops {
namespace {

using StoreIndexKeysCandidate = Candidate<StoreIndexKeysProblem, StoreIndexKeysArgs>;

template <cpu::Target kTarget> constexpr StoreIndexKeysCandidate on_cpu(std::string_view kernel) {
  return {.kernel = kernel,
          .takes = "any valid problem on a cpu with the target's instructions",
          .refuse =
              [](const StoreIndexKeysProblem& problem) {
                const std::string off_host = refuse_off_host(problem.device);
                return off_host.empty() ? cpu::refuse(problem, kTarget) : off_host;
              },
          .run = [](const StoreIndexKeysArgs& args,
                    const Context& context) { cpu::store_index_keys(args, context, kTarget); }};
}

constexpr StoreIndexKeysCandidate kCandidates[] = {
    {.kernel = "hopper/store_index_keys",
     .takes = "rows of up to 8192 columns on a GPU of compute capability 9.0",
     .refuse = [](const StoreIndexKeysProblem& problem) { return cuda::hopper::refuse(problem); },
     .run = [](const StoreIndexKeysArgs& args,
               const Context& context) { cuda::hopper::store_index_keys(args, context); }},
    on_cpu<cpu::Target::amx>("cpu/amx/store_index_keys"),
    on_cpu<cpu::Target::avx512>("cpu/avx512/store_index_keys"),
    on_cpu<cpu::Target::avx2>("cpu/avx2/store_index_keys"),
    on_cpu<cpu::Target::neon_bf16>("cpu/neon_bf16/store_index_keys"),
    on_cpu<cpu::Target::neon>("cpu/neon/store_index_keys"),
    on_cpu<cpu::Target::portable>("cpu/portable/store_index_keys"),
    {.kernel = "reference/store_index_keys",
     .takes = kReferenceTakes,
     .refuse = [](const StoreIndexKeysProblem& problem) { return refuse_off_host(problem.device); },
     .run = [](const StoreIndexKeysArgs& args,
               const Context&) { reference::store_index_keys(args); }},
};

}  // namespace

CandidateList<StoreIndexKeysProblem, StoreIndexKeysArgs> store_index_keys_candidates() {
  return kCandidates;
}

}  // namespace ops

Plan plan(const StoreIndexKeysProblem& problem, const Context& context) {
  return ops::choose("store_index_keys", ops::store_index_keys_candidates(), problem, context);
}

}  // namespace quire
