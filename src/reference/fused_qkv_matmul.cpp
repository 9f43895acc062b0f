// SPDX-License-Identifier: Apache-2.0
#include "reference/fused_qkv_matmul.h"

#include <cstdint>
#include <span>

#include "quire/paged_kv_operand.h"
#include "reference/projection.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"

namespace quire::reference {
namespace {

// Columns [head 0 | head 1 | …] to the rows of one token.
void store_heads(const KvOperandRef& rows, const Token& token, std::span<const double> columns) {
  const auto width = static_cast<std::size_t>(rows.layout().width());
  for (std::int64_t head = 0; head < rows.heads().count; ++head) {
    encode_row(rows, token.sequence, head, token.position,
               columns.subspan(static_cast<std::size_t>(head) * width, width));
  }
}

}  // namespace

void fused_qkv_matmul(const FusedQkvArgs& args, Arithmetic arithmetic) {
  const Matrix y = project(Projection(args), arithmetic);
  const auto q_dim = static_cast<std::size_t>(args.out.shape[1]);
  const PagedKvOperand keys(args.cache.key(args.layer));
  const PagedKvOperand values =
      args.cache.is_mla() ? keys : PagedKvOperand(args.cache.value(args.layer));
  const auto kv_dim = static_cast<std::size_t>(keys.heads().count * keys.layout().width());
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    const std::span<const double> row = y.row(token.index);
    for (std::size_t n = 0; n < q_dim; ++n) {
      args.out.store({token.index, static_cast<std::int64_t>(n)}, row[n]);
    }
    store_heads(keys, token, row.subspan(q_dim, kv_dim));
    if (args.cache.is_mla()) continue;
    store_heads(values, token, row.subspan(q_dim + kv_dim, kv_dim));
  }
}

}  // namespace quire::reference
