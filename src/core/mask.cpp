// SPDX-License-Identifier: Apache-2.0
#include "quire/mask.h"

#include <algorithm>
#include <charconv>

#include "quire/error.h"

namespace quire {
namespace {

[[noreturn]] void reject(const std::string& text) {
  throw Error(ErrorCode::invalid_value, "mask", "mask",
              "full, null, causal, sliding_window:N, sliding_window_causal:N, chunked:N or "
              "chunked_causal:N",
              "'" + text + "'");
}

std::string describe_node(const std::vector<Mask::Node>& nodes, std::int32_t index) {
  const Mask::Node& node = nodes[index];
  const auto child = [&](std::int32_t at) {
    const bool joined = nodes[at].kind == MaskKind::all_of || nodes[at].kind == MaskKind::any_of;
    const std::string text = describe_node(nodes, at);
    return joined && nodes[at].kind != node.kind ? "(" + text + ")" : text;
  };
  switch (node.kind) {
    case MaskKind::full:
      return "full";
    case MaskKind::causal:
      return "causal";
    case MaskKind::sliding_window:
      return "sliding_window(" + std::to_string(node.size) + ")";
    case MaskKind::chunked:
      return "chunked(" + std::to_string(node.size) + ")";
    case MaskKind::tree:
      return "tree";
    case MaskKind::key_intervals:
      return "key_intervals";
    case MaskKind::all_of:
      return child(node.left) + " & " + child(node.right);
    case MaskKind::any_of:
      return child(node.left) + " | " + child(node.right);
  }
  return "";
}

MaskSummary both(const MaskSummary& left, const MaskSummary& right) {
  const bool has_two_chunks =
      left.chunk != MaskSummary::kUnbounded && right.chunk != MaskSummary::kUnbounded;
  return {.is_interval = left.is_interval && right.is_interval && !has_two_chunks,
          .ahead = std::min(left.ahead, right.ahead),
          .window = std::min(left.window, right.window),
          .chunk = std::min(left.chunk, right.chunk),
          .trees = left.trees + right.trees,
          .key_intervals = left.key_intervals + right.key_intervals,
          .masks = left.masks + right.masks};
}

MaskSummary summarize(const std::vector<Mask::Node>& nodes, const Mask::Node& node) {
  const auto child = [&](std::int32_t at) {
    return summarize(nodes, nodes[static_cast<std::size_t>(at)]);
  };
  switch (node.kind) {
    case MaskKind::full:
      return {};
    case MaskKind::causal:
      return {.ahead = 0};
    case MaskKind::sliding_window:
      return {.window = node.size};
    case MaskKind::chunked:
      return {.chunk = node.size};
    case MaskKind::tree:
      return {.trees = 1};
    case MaskKind::key_intervals:
      return {.key_intervals = 1};
    case MaskKind::all_of:
      return both(child(node.left), child(node.right));
    case MaskKind::any_of: {
      const MaskSummary left = child(node.left);
      const MaskSummary right = child(node.right);
      return {.is_interval = false,
              .trees = left.trees + right.trees,
              .key_intervals = left.key_intervals + right.key_intervals,
              .masks = left.masks + right.masks};
    }
  }
  return {};
}

}  // namespace

Mask::Mask() : nodes_{Node{.kind = MaskKind::causal}} {}

Mask Mask::leaf(Node node) {
  Mask mask;
  mask.nodes_ = {node};
  return mask;
}

Mask Mask::full() {
  return leaf({.kind = MaskKind::full});
}
Mask Mask::causal() {
  return leaf({.kind = MaskKind::causal});
}
Mask Mask::sliding_window(std::int64_t size) {
  return leaf({.kind = MaskKind::sliding_window, .size = size});
}
Mask Mask::chunked(std::int64_t size) {
  return leaf({.kind = MaskKind::chunked, .size = size});
}
Mask Mask::tree(TensorView bits) {
  return leaf({.kind = MaskKind::tree, .bits = bits});
}
Mask Mask::key_intervals(TensorView begin, TensorView end) {
  return leaf({.kind = MaskKind::key_intervals, .begin = begin, .end = end});
}

Mask Mask::join(MaskKind kind, const Mask& left, const Mask& right) {
  const std::size_t num_nodes = left.nodes_.size() + right.nodes_.size() + 1;
  if (num_nodes > kMaxNodes) {
    throw Error(ErrorCode::invalid_value, "mask", "mask",
                "of at most " + std::to_string(kMaxNodes / 2 + 1) + " masks joined",
                std::to_string(num_nodes / 2 + 1));
  }
  Mask mask;
  mask.nodes_.reserve(num_nodes);
  mask.nodes_ = left.nodes_;
  const auto shift = static_cast<std::int32_t>(left.nodes_.size());
  for (Node node : right.nodes_) {
    if (node.left >= 0) node.left += shift;
    if (node.right >= 0) node.right += shift;
    mask.nodes_.push_back(node);
  }
  const auto last = static_cast<std::int32_t>(mask.nodes_.size()) - 1;
  mask.nodes_.push_back({.kind = kind, .left = shift - 1, .right = last});
  return mask;
}

Mask Mask::parse(const std::string& text) {
  if (text == "causal") return causal();
  if (text == "null" || text == "full") return full();
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) reject(text);
  std::int64_t size = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data() + colon + 1, end, size);
  if (status != std::errc() || stop != end || size <= 0) reject(text);
  const std::string kind = text.substr(0, colon);
  if (kind == "sliding_window") return sliding_window(size);
  if (kind == "sliding_window_causal") return causal() & sliding_window(size);
  if (kind == "chunked") return chunked(size);
  if (kind == "chunked_causal") return causal() & chunked(size);
  reject(text);
}

MaskSummary Mask::summary() const {
  return summarize(nodes_, root());
}

std::string Mask::describe() const {
  return describe_node(nodes_, static_cast<std::int32_t>(nodes_.size()) - 1);
}

}  // namespace quire
