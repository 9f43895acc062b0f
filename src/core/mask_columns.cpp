// SPDX-License-Identifier: Apache-2.0
#include "quire/mask_columns.h"

#include <algorithm>

namespace quire {
namespace {

std::int64_t first_visible(const Mask& mask, std::int32_t index, std::int64_t query) {
  const Mask::Node& node = mask.nodes()[index];
  switch (node.kind) {
    case MaskKind::full:
    case MaskKind::causal:
    case MaskKind::tree:
      return 0;
    case MaskKind::sliding_window:
      return std::max<std::int64_t>(query - node.size + 1, 0);
    case MaskKind::chunked:
      return query / node.size * node.size;
    case MaskKind::all_of:
      return std::max(first_visible(mask, node.left, query),
                      first_visible(mask, node.right, query));
    case MaskKind::any_of:
      return std::min(first_visible(mask, node.left, query),
                      first_visible(mask, node.right, query));
  }
  return 0;
}

}  // namespace

std::int64_t start_column(const Mask& mask, std::int64_t first_query, int tile_rows,
                          int page_size) {
  const auto root = static_cast<std::int32_t>(mask.nodes().size()) - 1;
  const int alignment = start_column_alignment(mask.root().kind, tile_rows, page_size);
  return first_visible(mask, root, first_query) / alignment * alignment;
}

}  // namespace quire
