// SPDX-License-Identifier: Apache-2.0
// mla_decode on the tensor cores of sm_90a, as the ops layer sees it: no CUDA headers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quire/ops/mla_decode.h"

namespace quire::cuda::hopper {

// Empty, or why not; general/launch.h takes the others. One for each kind of rows.
std::string refuse_mla_decode_bf16(const MlaDecodeProblem& problem);
std::string refuse_mla_decode_fp8(const MlaDecodeProblem& problem);
// Bounded by the multiprocessors, not by the context; with batch_invariant by the batch.
std::int64_t mla_decode_workspace_bytes(const MlaDecodeProblem& problem);
// ("kernel", "bf16_r64"), ("tile_tokens", "4")
std::vector<std::pair<std::string, std::string>> mla_decode_choices(
    const MlaDecodeProblem& problem);
void mla_decode_latent(const MlaDecodeArgs& args, const Context& context);

}  // namespace quire::cuda::hopper
