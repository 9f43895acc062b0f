// SPDX-License-Identifier: Apache-2.0
#include "reference/rms_norm.h"

#include <cmath>
#include <vector>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/ragged.h"

namespace quire::reference {
namespace {

// The columns that one mean runs over: `count` columns from head `first_head` on, heads flattened.
struct Span {
  std::int64_t first_head;
  std::int64_t count;
};

void normalize(const RmsNormArgs& args, const KvOperandRef& rows, const Token& token, Span span,
               Arithmetic arithmetic) {
  const RowLayout& layout = rows.layout();
  const std::int64_t width = layout.width();
  const auto address_of = [&](std::int64_t i) {
    return rows.row(token.sequence, span.first_head + i / width, token.position);
  };
  const auto column_of = [&](std::int64_t i) { return static_cast<std::int32_t>(i % width); };

  std::vector<double> x(static_cast<std::size_t>(span.count));
  double sum_of_squares = 0.0;
  for (std::int64_t i = 0; i < span.count; ++i) {
    const double value = layout.load(address_of(i), column_of(i));
    x[static_cast<std::size_t>(i)] = value;
    sum_of_squares = in_register(arithmetic, sum_of_squares + value * value);
  }

  const double mean = sum_of_squares / static_cast<double>(span.count);
  const double factor = in_register(arithmetic, 1.0 / std::sqrt(mean + args.epsilon));
  for (std::int64_t i = 0; i < span.count; ++i) {
    double y = x[static_cast<std::size_t>(i)] * factor;
    if (arithmetic == Arithmetic::crossed && !args.multiply_before_cast) {
      y = round_within(arithmetic, args.gamma.dtype, y, std::abs(y) * kFactorReach);
    } else {
      y = intermediate(arithmetic, args.gamma.dtype, y);
      if (!args.multiply_before_cast) y = round_to(args.gamma.dtype, y);
    }
    y *= args.gamma.load({i}) + args.weight_offset;
    layout.store(address_of(i), column_of(i), y);
  }
}

}  // namespace

void rms_norm(const RmsNormArgs& args, Arithmetic arithmetic) {
  const PagedKvOperand rows(args.side == KvSide::key ? args.cache.key(args.layer)
                                                     : args.cache.value(args.layer));
  const std::int64_t columns = args.gamma.shape[0];
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    const std::int64_t num_spans = args.per_head ? rows.heads().count : 1;
    for (std::int64_t head = 0; head < num_spans; ++head) {
      normalize(args, rows, token, {head, columns}, arithmetic);
    }
  }
}

}  // namespace quire::reference
