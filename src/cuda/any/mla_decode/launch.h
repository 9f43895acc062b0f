// SPDX-License-Identifier: Apache-2.0
// mla_decode for every valid problem on a GPU: any head count, row format, weight type and mask, on
// fp32 multiply-adds. Starts kernels on the context's stream, allocates nothing and never waits.
//
//   new rows ─ finish ─► pages ─────────────────┐
//   q ─ rotate, w_uk ─► q' f32 [tokens, heads, latent + rope] ─ attend ─► raw ─ w_uv ─► out
#pragma once

#include <cstdint>
#include <string>

#include "core/kernel.h"
#include "quire/ops/mla_decode.h"

namespace quire::cuda::any::mla_decode {

KernelPtr<MlaDecodeArgs> prepare_general(const MlaDecodeProblem& problem);

}  // namespace quire::cuda::any::mla_decode
