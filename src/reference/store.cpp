// SPDX-License-Identifier: Apache-2.0
#include "reference/store.h"

#include <vector>

#include "quire/paged_kv_operand.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

PagedKvOperand layer_of(const PagedKVCache& cache, std::int64_t layer, KvSide side) {
  return PagedKvOperand(side == KvSide::key ? cache.key(layer) : cache.value(layer));
}

// Codes that somebody quantized already: stored as they are, their scales left alone.
void store_codes(const KvOperandRef& rows, const Token& token, std::int64_t head,
                 const std::vector<double>& codes) {
  const RowAddress address = rows.row(token.sequence, head, token.position);
  for (std::int32_t column = 0; column < rows.layout().width(); ++column) {
    rows.layout().store(address, column, codes[static_cast<std::size_t>(column)]);
  }
}

}  // namespace

void store(const StoreArgs& args) {
  const PagedKvOperand rows = layer_of(args.cache, args.layer, args.side);
  const RowFormat format = rows.layout().format;
  const bool holds_codes = format.is_uniform() && args.x.dtype == format.parts[0].dtype;
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < rows.heads().count; ++head) {
      const std::vector<double> row = load_row(args.x, token.index, head);
      if (holds_codes) {
        store_codes(rows, token, head, row);
      } else {
        encode_row(rows, token.sequence, head, token.position, row);
      }
    }
  }
}

void store_scales(const StoreScalesArgs& args) {
  const PagedKvOperand operand = layer_of(args.cache, args.layer, args.side);
  const KvOperandRef rows = operand;
  const RowFormat& format = rows.layout().format;
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < rows.heads().count; ++head) {
      const RowAddress address = rows.row(token.sequence, head, token.position);
      // Column by column, so that no granularity needs to divide anything.
      for (std::int32_t column = 0; column < format.width(); ++column) {
        const auto part_index = static_cast<std::size_t>(format.locate(column).part);
        const RowPart& part = format.parts[part_index];
        if (part.scale_source != ScaleSource::plane) continue;
        const double scale = args.scales.load({token.index, head, column / part.granularity});
        rows.layout().store_scale(address, column, scale);
      }
    }
  }
}

}  // namespace quire::reference
