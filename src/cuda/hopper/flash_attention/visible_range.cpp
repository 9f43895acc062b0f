// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/flash_attention/visible_range.h"

#include <cstddef>
#include <vector>

namespace quire::cuda::hopper {
namespace {

int clamp_size(std::int64_t size) {
  return static_cast<int>(std::min<std::int64_t>(size, VisibleRange::kUnbounded));
}

std::optional<VisibleRange> both(const std::optional<VisibleRange>& left,
                                 const std::optional<VisibleRange>& right) {
  if (!left.has_value() || !right.has_value()) return std::nullopt;
  const bool has_two_chunks =
      left->chunk != VisibleRange::kUnbounded && right->chunk != VisibleRange::kUnbounded;
  if (has_two_chunks) return std::nullopt;
  return VisibleRange{.ahead = std::min(left->ahead, right->ahead),
                      .window = std::min(left->window, right->window),
                      .chunk = std::min(left->chunk, right->chunk)};
}

}  // namespace

std::optional<VisibleRange> visible_range(const Mask& mask) {
  std::vector<std::optional<VisibleRange>> ranges;  // of each node, children first
  for (const Mask::Node& node : mask.nodes()) {
    std::optional<VisibleRange> range;
    switch (node.kind) {
      case MaskKind::full:
        range = VisibleRange{};
        break;
      case MaskKind::causal:
        range = VisibleRange{.ahead = 0};
        break;
      case MaskKind::sliding_window:
        range = VisibleRange{.window = clamp_size(node.size)};
        break;
      case MaskKind::chunked:
        range = VisibleRange{.chunk = clamp_size(node.size)};
        break;
      case MaskKind::all_of:
        range = both(ranges[static_cast<std::size_t>(node.left)],
                     ranges[static_cast<std::size_t>(node.right)]);
        break;
      case MaskKind::tree:
      case MaskKind::any_of:
        break;
    }
    ranges.push_back(range);
  }
  return ranges.back();
}

std::string refuse_range(const std::string& description) {
  const auto holds = [&](const char* part) { return description.find(part) != std::string::npos; };
  const bool is_interval =
      !holds("|") && !holds("tree") && description.find("chunked") == description.rfind("chunked");
  return is_interval ? "" : "the mask shows more than one interval of keys: " + description;
}

}  // namespace quire::cuda::hopper
