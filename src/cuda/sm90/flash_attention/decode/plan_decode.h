// SPDX-License-Identifier: Apache-2.0
// Which decode kernel takes a problem, and how its work is cut. Pure: tested without a GPU.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/sm90/flash_attention/decode/params.h"
#include "cuda/sm90/flash_attention/decode/variant_table.h"
#include "quire/mask.h"
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

// Masks of decoding: one interval of keys for every query (visible_range.h), narrowed by its own
// (token_intervals.h), and of the new keys among them those that a tree shows.

struct TreeMask {
  VisibleRange visible{};
  DecodeTree tree{};
  TokenIntervals intervals{};
};

// Of a mask that refuse_tree_mask() lets pass, and its summary.
TreeMask tree_mask(const Mask& mask, const MaskSummary& summary);
// Empty, or why the mask is not of this kind: two trees, two sets of intervals, or either of two, are not.
std::string refuse_tree_mask(const MaskSummary& mask);

}  // namespace quire::cuda::sm90::flash_attention
