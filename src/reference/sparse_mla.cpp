// SPDX-License-Identifier: Apache-2.0
#include "reference/sparse_mla.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quire/paged_kv_operand.h"
#include "reference/attention_row.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

using Rows = std::vector<std::vector<double>>;

// One cache with the rows to take from it; the main stream and the extra one look alike.
struct Stream {
  const PagedKVCache& cache;
  std::int64_t layer;
  const TensorView& indices;                 // i32 [tokens, slots]
  const std::optional<TensorView>& lengths;  // i32 [tokens]
};

// Appends the rows that a token's slots name, in slot order.
void gather(const Stream& stream, const Token& token, std::int64_t num_keys, Rows& rows) {
  const PagedKvOperand keys(stream.cache.key(stream.layer));
  const KvOperandRef key_rows = keys;
  std::int64_t num_slots = stream.indices.shape[1];
  if (stream.lengths) {
    const auto length = static_cast<std::int64_t>(stream.lengths->load({token.index}));
    num_slots = std::clamp<std::int64_t>(length, 0, num_slots);
  }
  for (std::int64_t slot = 0; slot < num_slots; ++slot) {
    const auto key = static_cast<std::int64_t>(stream.indices.load({token.index, slot}));
    if (key < 0 || key >= num_keys) continue;
    if (key_rows.row(token.sequence, 0, key).row == nullptr) continue;
    rows.push_back(decode_row(key_rows, token.sequence, 0, key));
  }
}

Rows chosen_rows(const SparseMlaArgs& args, const Token& token, Arithmetic arithmetic) {
  Rows rows;
  gather({args.cache, args.layer, args.indices, args.topk_lengths}, token,
         num_keys(args.row_offsets, args.cache, token.sequence), rows);
  if (args.extra) {
    gather(
        {args.extra->cache, args.extra->layer, args.extra->indices, args.extra->lengths}, token,
        num_keys(args.row_offsets, args.extra->cache, token.sequence) / args.extra->tokens_per_row,
        rows);
  }
  for (std::vector<double>& row : rows) {
    for (double& element : row) element = intermediate(arithmetic, args.q.dtype, element);
  }
  return rows;
}

}  // namespace

void sparse_mla(const SparseMlaArgs& args, Arithmetic arithmetic) {
  const ScoreModifier modifier{.scale = args.scale};
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    const Rows rows = chosen_rows(args, token, arithmetic);
    const std::vector<std::span<const double>> values(rows.begin(), rows.end());
    for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
      const std::vector<double> q = load_row(args.q, token.index, head);
      std::vector<double> scores = dots(arithmetic, q, values);
      for (double& score : scores) {
        score = modify_score(modifier, score, 0, 0, arithmetic, args.q.dtype);
      }
      AttentionRow out = attend(scores, values, args.out.shape[2], arithmetic, args.q.dtype);
      if (args.sinks) out = add_sink(out, args.sinks->load({head}));
      store_row(out, token.index, head, args.out, args.lse);
    }
  }
}

}  // namespace quire::reference
