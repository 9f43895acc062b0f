// SPDX-License-Identifier: Apache-2.0
// Which decode kernel takes a problem, and how its work is cut. Pure: tested without a GPU.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/sm90/flash_attention/decode/variant_table.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::sm90::flash_attention {

struct DecodePlan {
  const DecodeVariant* variant = nullptr;
  int tile_tokens = 1;
  DecodeSplit split{};
  DecodeLines lines{};
  std::int64_t slots = 0;  // of pieces in the workspace
  bool joins = false;      // pieces without a second kernel
};

// Empty, or why no decode kernel takes the problem; the device is not looked at.
std::string refuse_decode_problem(const FlashAttentionProblem& problem);
// Of a problem that is not refused.
DecodePlan plan_decode(const FlashAttentionProblem& problem, int num_sms);

}  // namespace quire::cuda::sm90::flash_attention
