// SPDX-License-Identifier: Apache-2.0
#include "reference/store.h"

#include <array>
#include <vector>

#include "quire/paged_kv_operand.h"
#include "quire/slotted_kv_operand.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

KvLayerView layer_of(const PagedKVCache& cache, std::int64_t layer, KvSide side) {
  return side == KvSide::key ? cache.key(layer) : cache.value(layer);
}

// Codes that somebody quantized already: stored as they are, their scales left alone.
void store_codes(const KvOperandRef& rows, const Token& token, std::int64_t head,
                 const std::vector<double>& codes) {
  const RowAddress address = rows.row(token.sequence, head, token.position);
  for (std::int32_t column = 0; column < rows.layout().width(); ++column) {
    rows.layout().store(address, column, codes[static_cast<std::size_t>(column)]);
  }
}

void store_rows(const KvOperandRef& rows, const TensorView& row_offsets, const TensorView& x) {
  const RowFormat format = rows.layout().format;
  const bool holds_codes = format.is_uniform() && x.dtype == format.parts[0].dtype;
  for (const Token& token : tokens_of(row_offsets, rows)) {
    for (std::int64_t head = 0; head < rows.heads().count; ++head) {
      const std::vector<double> row = load_row(x, token.index, head);
      if (holds_codes) {
        store_codes(rows, token, head, row);
      } else {
        encode_row(rows, token.sequence, head, token.position, row);
      }
    }
  }
}

void store_side(const StoreArgs& args, const TensorView& x, KvSide side) {
  const KvLayerView view = layer_of(args.cache, args.layer, side);
  if (!args.slots.has_value()) return store_rows(PagedKvOperand(view), args.row_offsets, x);
  std::array<std::uint32_t, 2> one_sequence{0, static_cast<std::uint32_t>(x.shape[0])};
  store_rows(SlottedKvOperand(view, *args.slots),
             TensorView::contiguous(one_sequence.data(), DType::u32, {2}), x);
}

}  // namespace

void store(const StoreArgs& args) {
  store_side(args, args.x, args.side);
  if (args.value.has_value()) store_side(args, *args.value, KvSide::value);
}

void store_scales(const StoreScalesArgs& args) {
  const PagedKvOperand operand(layer_of(args.cache, args.layer, args.side));
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
