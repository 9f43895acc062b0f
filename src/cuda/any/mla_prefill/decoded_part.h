// SPDX-License-Identifier: Apache-2.0
// The sequences of a mixed batch that mla_prefill decodes. Which they are is known on the device
// only: their tokens are picked into rows of their own, decoded as a batch in which all other
// sequences have no token, and put back; the branch's attention passes them by.
//
//   row_offsets ─► picked offsets      q ─ pick ─► [picked, heads, nope + rope]
//                                                   └ mla_decode ─► out, LSE ─ put back ─► out, LSE
#pragma once

#include <cstdint>

#include "core/kernel.h"
#include "cuda/common/runtime/carver.h"
#include "quire/ops/mla_decode.h"
#include "quire/ops/mla_prefill.h"

namespace quire::cuda::any::mla_prefill {

enum class DecodeKernels : std::uint8_t { fastest, general };

class DecodedPart {
 public:
  DecodedPart(const MlaPrefillProblem& problem, DecodeKernels kernels);

  // Scratch for at most batch · decode_tokens rows; nothing where none is decoded.
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  // After the branch: rows are finished, queries rotated. `workspace` is the part's own.
  void run(const MlaPrefillArgs& args, const Context& context, std::byte* workspace) const;

 private:
  MlaPrefillProblem problem_;
  KernelPtr<MlaDecodeArgs> kernel_{};  // null: no sequence is decoded
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace quire::cuda::any::mla_prefill
