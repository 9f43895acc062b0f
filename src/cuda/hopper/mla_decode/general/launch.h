// SPDX-License-Identifier: Apache-2.0
// mla_decode for every valid problem on a GPU: any head count, row format, weight type and mask, on
// fp32 multiply-adds. Starts kernels on the context's stream, allocates nothing and never waits.
//
//   new rows ─ finish ─► pages ─────────────────┐
//   q ─ rotate, w_uk ─► q' f32 [tokens, heads, latent + rope] ─ attend ─► raw ─ w_uv ─► out
#pragma once

#include <cstdint>
#include <string>

#include "quire/ops/mla_decode.h"

namespace quire::cuda::hopper {

// Empty, or why not: tensors elsewhere, or a mask of more joins than a launch can carry.
std::string refuse_general(const MlaDecodeProblem& problem);
std::int64_t general_workspace_bytes(const MlaDecodeProblem& problem);
void mla_decode_general(const MlaDecodeArgs& args, const Context& context);

}  // namespace quire::cuda::hopper
