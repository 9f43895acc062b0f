// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_check.h"

#include <fmt/format.h>

#include <cmath>

namespace quire::ops {
namespace {

void check_tree(Arguments& check, const TensorView& bits, const RaggedSize& ragged) {
  check.tensor("mask.bits", bits).is(DType::u8, {ragged.tokens, "max_new_tokens"}).has_dense_rows();
  if (bits.shape[1] < ragged.max_new_tokens) {
    check.fail("mask.bits",
               fmt::format("u8[{}, {}] or wider", ragged.tokens, ragged.max_new_tokens),
               bits.describe());
  }
}

void check_key_intervals(Arguments& check, const Mask::Node& node, const RaggedSize& ragged) {
  check.tensor("mask.begin", node.begin).is(DType::i32, {ragged.tokens});
  check.tensor("mask.end", node.end).is(DType::i32, {ragged.tokens});
}

}  // namespace

void check_mask(Arguments& check, const Mask& mask, const RaggedSize& ragged) {
  for (const Mask::Node& node : mask.nodes()) {
    const bool has_size = node.kind == MaskKind::sliding_window || node.kind == MaskKind::chunked;
    if (has_size && node.size < 1) {
      check.fail("mask", "of windows and chunks of at least 1", mask.describe());
    }
    if (node.kind == MaskKind::tree) check_tree(check, node.bits, ragged);
    if (node.kind == MaskKind::key_intervals) check_key_intervals(check, node, ragged);
  }
}

void check_causal_or_full(const Arguments& check, const Mask& mask) {
  const MaskKind kind = mask.root().kind;
  if (kind != MaskKind::causal && kind != MaskKind::full) {
    check.fail("mask", "causal or full", mask.describe());
  }
}

void check_per_head(Arguments& check, ArgumentName name, const std::optional<TensorView>& values,
                    std::int64_t heads) {
  if (values.has_value()) check.tensor(name, *values).is(DType::f32, {heads}).has_dense_rows();
}

void check_attention_out(Arguments& check, const TensorView& out, const TensorView& q,
                         const char* width) {
  check.tensor("out", out)
      .is(kActivations, {q.shape[0], q.shape[1], width})
      .has_full_rows()
      .has_dense_rows()
      .is_written();
}

void check_value_columns(const Arguments& check, const TensorView& out, std::int64_t columns,
                         const char* rows) {
  if (out.shape[2] > columns) {
    check.fail("out", fmt::format("at most {} wide like {}", columns, rows), out.describe());
  }
}

void check_lse(Arguments& check, const std::optional<TensorView>& lse, std::int64_t tokens,
               std::int64_t heads) {
  if (lse.has_value()) check.tensor("lse", *lse).is(DType::f32, {tokens, heads}).is_written();
}

void check_softcap(const Arguments& check, double softcap) {
  if (!std::isfinite(softcap) || softcap < 0.0) {
    check.fail("softcap", "0 (off) or positive and finite", fmt::format("{}", softcap));
  }
}

}  // namespace quire::ops
