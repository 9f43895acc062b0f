// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/flash_attention/decode/tree_mask.h"

#include <cstddef>
#include <vector>

namespace quire::cuda::hopper {
namespace {

constexpr std::string_view kTree = "tree";

// A node without its children, a tree as if it showed every key.
Mask leaf_of(const Mask::Node& node) {
  switch (node.kind) {
    case MaskKind::causal:
      return Mask::causal();
    case MaskKind::sliding_window:
      return Mask::sliding_window(node.size);
    case MaskKind::chunked:
      return Mask::chunked(node.size);
    default:
      return Mask::full();
  }
}

Mask without_trees(const Mask& mask) {
  std::vector<Mask> parts;  // of each node, children first
  for (const Mask::Node& node : mask.nodes()) {
    const auto part = [&](std::int32_t child) { return parts[static_cast<std::size_t>(child)]; };
    if (node.kind == MaskKind::all_of) {
      parts.push_back(part(node.left) & part(node.right));
    } else if (node.kind == MaskKind::any_of) {
      parts.push_back(part(node.left) | part(node.right));
    } else {
      parts.push_back(leaf_of(node));
    }
  }
  return parts.back();
}

}  // namespace

std::optional<TreeMask> tree_mask(const Mask& mask) {
  TreeMask found;
  for (const Mask::Node& node : mask.nodes()) {
    if (node.kind != MaskKind::tree) continue;
    if (found.tree.bits != nullptr) return std::nullopt;
    found.tree = {.bits = node.bits.as<const std::uint8_t>(),
                  .token_stride = node.bits.strides[0],
                  .columns = static_cast<int>(node.bits.shape[1])};
  }
  const std::optional<VisibleRange> visible = visible_range(without_trees(mask));
  if (!visible.has_value()) return std::nullopt;
  found.visible = *visible;
  return found;
}

std::string refuse_tree_mask(std::string description) {
  const std::size_t at = description.find(kTree);
  if (at != std::string::npos) description.replace(at, kTree.size(), Mask::full().describe());
  return refuse_range(description);
}

}  // namespace quire::cuda::hopper
