// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/mask_ranges.h"

#include <algorithm>
#include <cstdlib>

namespace quire::cpu {
namespace {

const Mask::Node& node_at(const Mask& mask, std::int32_t index) {
  return mask.nodes()[static_cast<std::size_t>(index)];
}

std::int32_t root_of(const Mask& mask) {
  return static_cast<std::int32_t>(mask.nodes().size()) - 1;
}

bool tree_shows(const TensorView& bits, std::int64_t token, std::int64_t new_key) {
  if (new_key < 0) return true;  // cached
  if (new_key >= bits.shape[1]) return false;
  return bits.as<const std::uint8_t>()[bits.offset({token, new_key})] != 0;
}

KeyRange interval_of(const Mask::Node& node, std::int64_t token) {
  return {.begin = node.begin.as<const std::int32_t>()[node.begin.offset({token})],
          .end = node.end.as<const std::int32_t>()[node.end.offset({token})]};
}

}  // namespace

MaskRanges::MaskRanges(const Mask& mask) : mask_(mask) {
  for (const Mask::Node& node : mask.nodes()) {
    if (node.kind == MaskKind::tree || node.kind == MaskKind::any_of) is_exact_ = false;
  }
}

KeyRange MaskRanges::range(std::int64_t token, std::int64_t position, std::int64_t num_keys) const {
  const KeyRange wanted =
      node_range(root_of(mask_), {.token = token, .position = position, .num_keys = num_keys});
  const KeyRange seen{std::max<std::int64_t>(wanted.begin, 0), std::min(wanted.end, num_keys)};
  // Kernels count from begin to end: bounds that cross must not reach them.
  return seen.is_empty() ? KeyRange{} : seen;
}

KeyRange MaskRanges::node_range(std::int32_t index, const Query& query) const {
  const Mask::Node& node = node_at(mask_, index);
  switch (node.kind) {
    case MaskKind::full:
    case MaskKind::tree:
      return {0, query.num_keys};
    case MaskKind::causal:
      return {0, query.position + 1};
    case MaskKind::sliding_window: {
      // Beyond every position, and no sum with one overflows: the largest number of all means "no limit" to callers.
      const std::int64_t size = std::min(node.size, std::int64_t{1} << 40);
      return {query.position - size + 1, query.position + size};
    }
    case MaskKind::chunked: {
      const std::int64_t begin = query.position / node.size * node.size;
      return {begin, begin + node.size};
    }
    case MaskKind::key_intervals:
      return interval_of(node, query.token);
    case MaskKind::all_of:
    case MaskKind::any_of:
      break;
  }
  const KeyRange left = node_range(node.left, query);
  const KeyRange right = node_range(node.right, query);
  if (node.kind == MaskKind::all_of) {
    return {std::max(left.begin, right.begin), std::min(left.end, right.end)};
  }
  if (left.is_empty()) return right;
  if (right.is_empty()) return left;
  return {std::min(left.begin, right.begin), std::max(left.end, right.end)};
}

bool MaskRanges::node_shows(std::int32_t index, const State& state, const QueryRow& row,
                            std::int64_t key) const {
  const Mask::Node& node = node_at(mask_, index);
  switch (node.kind) {
    case MaskKind::full:
      return true;
    case MaskKind::causal:
      return key <= row.position;
    case MaskKind::sliding_window:
      return std::abs(row.position - key) < node.size;
    case MaskKind::chunked:
      return row.position / node.size == key / node.size;
    case MaskKind::tree:
      return tree_shows(node.bits, row.token, key - state.cache_length);
    case MaskKind::key_intervals: {
      const KeyRange seen = interval_of(node, row.token);
      return key >= seen.begin && key < seen.end;
    }
    case MaskKind::all_of:
      return node_shows(node.left, state, row, key) && node_shows(node.right, state, row, key);
    case MaskKind::any_of:
      return node_shows(node.left, state, row, key) || node_shows(node.right, state, row, key);
  }
  return false;
}

void MaskRanges::fill_visible(const void* state, const QueryRow& row, std::int64_t first, int count,
                              std::uint8_t* visible) {
  const State& own = *static_cast<const State*>(state);
  const std::int32_t root = root_of(own.ranges->mask_);
  for (int j = 0; j < count; ++j) {
    visible[j] = own.ranges->node_shows(root, own, row, first + j) ? 1 : 0;
  }
}

}  // namespace quire::cpu
