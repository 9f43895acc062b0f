// SPDX-License-Identifier: Apache-2.0
// mla_decode on the tensor cores of sm_90a, as the ops layer sees it: no CUDA headers.
#pragma once

#include <string>

#include "core/kernel.h"
#include "quire/ops/mla_decode.h"

namespace quire::cuda::sm90::mla_decode {

// Empty, or why not; any/mla_decode/launch.h takes the others. One for each kind of rows.
std::string refuse_mla_decode_bf16(const MlaDecodeProblem& problem);
std::string refuse_mla_decode_fp8(const MlaDecodeProblem& problem);
// Its workspace is bounded by the multiprocessors, not by the context; with batch_invariant by the batch.
// Choices: ("kernel", "bf16_r64"), ("tile_tokens", "4").
KernelPtr<MlaDecodeArgs> prepare_mla_decode(const MlaDecodeProblem& problem);

}  // namespace quire::cuda::sm90::mla_decode
