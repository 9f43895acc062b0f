// SPDX-License-Identifier: Apache-2.0
// What a prefill keeps in the caller's workspace: one list for the plan's bytes and the launch's
// addresses.
#pragma once

#include "cuda/sm90/flash_attention/prefill/plan_prefill.h"

namespace quire::cuda::sm90::flash_attention {

struct PrefillWorkspace {
  int* next_tile = nullptr;  // and what else begins at zero behind it
  std::int64_t zero_bytes = 0;
  TailPieces tail{};
  // PrefillPath::dequantizing (prefill/dequantized/dequantized_keys.h), narrow (prefill/fp8/transposed_keys.h)
  std::uint32_t* states = nullptr;
  std::byte* rows = nullptr;
  // PrefillPath::dequantized (prefill/dequantized/dequantize_pages.h)
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::uint32_t* table = nullptr;
  // PrefillPath::fp8 (common/prefill_attention/fp8/transpose_values.h)
  std::byte* transposed = nullptr;
  std::int64_t bytes = 0;

  PrefillWorkspace(const FlashAttentionProblem& problem, const PrefillPlan& plan,
                   void* base = nullptr);
};

// Blocks of keys of a sequence's KV head, as prefill/dequantized/dequantized_keys.h counts them.
int dequantized_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan);
// Blocks of keys of a sequence, as common/prefill_attention/fp8/transpose_values.h counts them.
int transposed_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan);

}  // namespace quire::cuda::sm90::flash_attention
