// SPDX-License-Identifier: Apache-2.0
// What stands around the attention of a call that comes with weights: new rows finished, queries
// absorbed and rotated, values projected.
#pragma once

#include "cuda/common/runtime/carver.h"
#include "quire/ops/mla_decode.h"

namespace quire::cuda::sm90::mla_decode {

struct ProjectionScratch {
  float* rows = nullptr;        // [tokens, latent + rope], where new rows are to be finished
  std::byte* q = nullptr;       // bf16 [tokens, heads, latent + rope], absorbed
  std::byte* latent = nullptr;  // bf16 [tokens, heads, latent], attended
};

ProjectionScratch carve_projections(Carver& carver, const MlaDecodeProblem& problem);

// The call that the attention sees: q absorbed, out of latents; `args` itself where it is one.
MlaDecodeArgs absorb_queries(const MlaDecodeArgs& args, const ProjectionScratch& scratch,
                             const Context& context);
// What it attended to, times w_uv.
void project_values(const MlaDecodeArgs& args, const MlaDecodeArgs& absorbed,
                    const Context& context);

}  // namespace quire::cuda::sm90::mla_decode
