// SPDX-License-Identifier: Apache-2.0
// The sequences of a mixed batch that mla_prefill decodes. Which they are is known on the device
// only: their tokens are picked into rows of their own, decoded as a batch in which all other
// sequences have no token, and put back; the branch's attention passes them by.
//
//   row_offsets ─► picked offsets      q ─ pick ─► [picked, heads, nope + rope]
//                                                   └ mla_decode ─► out, LSE ─ put back ─► out, LSE
#pragma once

#include <cstdint>

#include "cuda/runtime/carver.h"
#include "quire/ops/mla_decode.h"
#include "quire/ops/mla_prefill.h"

namespace quire::cuda::hopper {

enum class DecodeKernels : std::uint8_t { fastest, general };

// Scratch for at most batch · decode_tokens rows; nothing where none is decoded.
std::int64_t decoded_part_bytes(const MlaPrefillProblem& problem, DecodeKernels kernels);

// After the branch: rows are finished, queries rotated. `workspace` is the part's own.
void decode_part(const MlaPrefillArgs& args, const MlaPrefillProblem& problem,
                 DecodeKernels kernels, const Context& context, std::byte* workspace);

}  // namespace quire::cuda::hopper
