// SPDX-License-Identifier: Apache-2.0
// project_rows() with e4m3 weights of up to 512 latents.
#pragma once

#include "cuda/sm90/mla_prefill/project.h"

namespace quire::cuda::sm90::mla_prefill {

bool is_stationary(const ProjectionParams& params);
// The rotation of `params` takes the kernel no longer than its products do.
bool rotates_beside(const ProjectionParams& params);
void project_stationary(const ProjectionParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_prefill
