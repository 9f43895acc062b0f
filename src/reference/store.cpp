// SPDX-License-Identifier: Apache-2.0
#include "reference/store.h"

#include <vector>

#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

KvLayerView layer_of(const PagedKVCache& cache, std::int64_t layer, KvSide side) {
  return side == KvSide::key ? cache.key(layer) : cache.value(layer);
}

// Codes that somebody quantized already: stored as they are, their scales left alone.
void store_codes(const KvLayerView& view, const Token& token, std::int64_t head,
                 const std::vector<double>& codes) {
  for (std::int32_t column = 0; column < view.width(); ++column) {
    view.store(token.sequence, head, token.position, column,
               codes[static_cast<std::size_t>(column)]);
  }
}

}  // namespace

void store(const StoreArgs& args) {
  const KvLayerView view = layer_of(args.cache, args.layer, args.side);
  const bool holds_codes =
      view.row_format.is_uniform() && args.x.dtype == view.row_format.parts[0].dtype;
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < view.num_heads; ++head) {
      const std::vector<double> row = load_row(args.x, token.index, head);
      if (holds_codes) {
        store_codes(view, token, head, row);
      } else {
        encode_row(view, token.sequence, head, token.position, row);
      }
    }
  }
}

void store_scales(const StoreScalesArgs& args) {
  const KvLayerView view = layer_of(args.cache, args.layer, args.side);
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < view.num_heads; ++head) {
      // Column by column, so that no granularity needs to divide anything.
      for (std::int32_t column = 0; column < view.width(); ++column) {
        const auto part_index = static_cast<std::size_t>(view.row_format.locate(column).part);
        const RowPart& part = view.row_format.parts[part_index];
        if (part.scale_source != ScaleSource::plane) continue;
        const double scale = args.scales.load({token.index, head, column / part.granularity});
        view.store_scale(token.sequence, head, token.position, column, scale);
      }
    }
  }
}

}  // namespace quire::reference
