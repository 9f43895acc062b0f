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
  // PrefillPath::expanding (expanded/expanded_keys.h), narrow (narrow/flipped_keys.h)
  std::uint32_t* states = nullptr;
  std::byte* rows = nullptr;
  // PrefillPath::expanded (expanded/expand_pages.h)
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::uint32_t* table = nullptr;
  // PrefillPath::narrow (narrow/flip_values.h)
  std::byte* flipped = nullptr;
  std::int64_t bytes = 0;

  PrefillWorkspace(const FlashAttentionProblem& problem, const PrefillPlan& plan,
                   void* base = nullptr);
};

// Blocks of keys of a sequence's KV head, as expanded/expanded_keys.h counts them.
int expanded_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan);
// Blocks of keys of a sequence, as narrow/flip_values.h counts them.
int flipped_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan);

}  // namespace quire::cuda::sm90::flash_attention
