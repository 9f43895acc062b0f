// SPDX-License-Identifier: Apache-2.0
// What stands around the attention of a call that comes with weights: new rows finished, queries
// absorbed and rotated, values projected.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/runtime/carver.h"
#include "cuda/sm90/mla_decode/params.h"
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

// What TMA is told of `pages`, and box_rows in them.
void set_row_maps(MlaDecodeParams& params);
// Whole rows, 16 at a time: in swizzle columns of 128 bytes (`params.format` is set), and spaced out.
void set_swizzle_column_maps(MlaDecodeParams& params);
void set_unit_maps(MlaDecodeParams& params);

// Right after the attention kernel on the same stream.
// `blocks`: that one had. `items`: expected of all sequences; more of them take longer, but are taken.
void merge_mla_pieces(const MlaDecodeParams& params, std::int64_t items, int blocks,
                      cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_decode
