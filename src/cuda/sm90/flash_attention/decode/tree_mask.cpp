// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/decode/tree_mask.h"

namespace quire::cuda::sm90::flash_attention {

TreeMask tree_mask(const Mask& mask, const MaskSummary& summary) {
  TreeMask found{.visible = visible_range(summary)};
  if (summary.trees == 0) return found;
  for (const Mask::Node& node : mask.nodes()) {
    if (node.kind != MaskKind::tree) continue;
    found.tree = {.bits = node.bits.as<const std::uint8_t>(),
                  .token_stride = node.bits.strides[0],
                  .columns = static_cast<int>(node.bits.shape[1])};
  }
  return found;
}

std::string refuse_tree_mask(const MaskSummary& mask) {
  if (mask.trees > 1) return "the mask has more than one tree";
  MaskSummary without_tree = mask;
  without_tree.trees = 0;
  return refuse_range(without_tree);
}

}  // namespace quire::cuda::sm90::flash_attention
