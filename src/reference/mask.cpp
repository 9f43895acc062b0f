// SPDX-License-Identifier: Apache-2.0
#include "reference/mask.h"

#include <cstddef>
#include <cstdlib>

namespace quire::reference {
namespace {

// bits [tokens, max_new_tokens]: the row of the query, the column of the new key. Cached keys are
// always seen.
bool tree_shows(const TensorView& bits, const Token& token, std::int64_t key) {
  const std::int64_t cache_length = token.position - token.local;
  if (key < cache_length) return true;
  const std::int64_t column = key - cache_length;
  return column < bits.shape[1] && bits.load({token.index, column}) != 0.0;
}

// begin, end [tokens]: of absolute positions.
bool interval_shows(const Mask::Node& node, const Token& token, std::int64_t key) {
  const auto position = static_cast<double>(key);
  return position >= node.begin.load({token.index}) && position < node.end.load({token.index});
}

bool node_shows(const Mask& mask, std::size_t index, const Token& token, std::int64_t key) {
  const Mask::Node& node = mask.nodes()[index];
  switch (node.kind) {
    case MaskKind::full:
      return true;
    case MaskKind::causal:
      return key <= token.position;
    case MaskKind::sliding_window:
      return std::abs(token.position - key) < node.size;
    case MaskKind::chunked:
      return token.position / node.size == key / node.size;
    case MaskKind::tree:
      return tree_shows(node.bits, token, key);
    case MaskKind::key_intervals:
      return interval_shows(node, token, key);
    case MaskKind::all_of:
      return node_shows(mask, static_cast<std::size_t>(node.left), token, key) &&
             node_shows(mask, static_cast<std::size_t>(node.right), token, key);
    case MaskKind::any_of:
      return node_shows(mask, static_cast<std::size_t>(node.left), token, key) ||
             node_shows(mask, static_cast<std::size_t>(node.right), token, key);
  }
  return false;
}

}  // namespace

bool is_visible(const Mask& mask, const Token& token, std::int64_t key) {
  return node_shows(mask, mask.nodes().size() - 1, token, key);
}

}  // namespace quire::reference
