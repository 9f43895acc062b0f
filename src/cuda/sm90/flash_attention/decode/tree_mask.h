// SPDX-License-Identifier: Apache-2.0
// Masks of decoding: one interval of keys for every query (visible_range.h), and of the new ones among
// them those that a tree shows.
#pragma once

#include <string>

#include "cuda/sm90/flash_attention/decode/params.h"
#include "quire/mask.h"

namespace quire::cuda::sm90::flash_attention {

struct TreeMask {
  VisibleRange visible{};
  DecodeTree tree{};
};

// Of a mask that refuse_tree_mask() lets pass, and its summary.
TreeMask tree_mask(const Mask& mask, const MaskSummary& summary);
// Empty, or why the mask is not of this kind: two trees, or either of two, are not.
std::string refuse_tree_mask(const MaskSummary& mask);

}  // namespace quire::cuda::sm90::flash_attention
