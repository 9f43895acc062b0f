// SPDX-License-Identifier: Apache-2.0
#include "reference/rope.h"

#include <cmath>
#include <span>
#include <vector>

#include "quire/paged_kv_operand.h"
#include "reference/ragged.h"
#include "reference/row_codec.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

struct Pair {
  std::int64_t a;
  std::int64_t b;
};

// Columns of pair j in a row of `width` columns.
Pair pair_columns(const RopeArgs& args, std::int64_t width, std::int64_t j) {
  const std::int64_t rope_dim = args.freqs_cis.shape[1];
  if (!args.interleaved) return {j, j + rope_dim / 2};
  const std::int64_t first = width - rope_dim;
  return {first + 2 * j, first + 2 * j + 1};
}

// The section that serves pair j; pairs past the last section use section 0.
std::int64_t section_of(const RopeArgs& args, std::int64_t j) {
  std::int64_t end = 0;
  for (std::size_t section = 0; section < args.mrope_sections.size(); ++section) {
    end += args.mrope_sections[section];
    if (j < end) return static_cast<std::int64_t>(section);
  }
  return 0;
}

// Row of freqs_cis for pair j of a token.
std::int64_t freqs_row(const RopeArgs& args, const Token& token, std::int64_t j) {
  if (!args.position_ids) return token.position;
  const TensorView& ids = *args.position_ids;
  return ids.as<const std::uint32_t>()[ids.offset({section_of(args, j), token.index})];
}

// Naive: as four products and two sums, each a tensor of `dtype`.
struct Rounding {
  Arithmetic arithmetic;
  DType dtype;

  double operator()(double value) const { return intermediate(arithmetic, dtype, value); }
};

// Naive: the normalised row and its product with gamma are tensors of `dtype`.
void normalize(const RopeArgs& args, const TensorView& gamma, std::span<double> row,
               Rounding rounded) {
  const std::span<double> columns = row.first(static_cast<std::size_t>(gamma.shape[0]));
  double sum_of_squares = 0.0;
  for (const double x : columns) {
    sum_of_squares = in_register(rounded.arithmetic, sum_of_squares + x * x);
  }
  const double mean = sum_of_squares / static_cast<double>(gamma.shape[0]);
  const double factor = in_register(rounded.arithmetic, 1.0 / std::sqrt(mean + args.epsilon));
  for (std::int64_t i = 0; i < gamma.shape[0]; ++i) {
    double& x = columns[static_cast<std::size_t>(i)];
    x = rounded(rounded(x * factor) * (gamma.load({i}) + args.weight_offset));
  }
}

void rotate(const RopeArgs& args, const Token& token, std::span<double> row, Rounding rounded) {
  for (std::int64_t j = 0; j < args.freqs_cis.shape[1] / 2; ++j) {
    const std::int64_t freqs = freqs_row(args, token, j);
    const double cos = args.freqs_cis.load({freqs, 2 * j});
    const double sin = (args.inverse ? -1.0 : 1.0) * args.freqs_cis.load({freqs, 2 * j + 1});
    const auto [column_a, column_b] = pair_columns(args, static_cast<std::int64_t>(row.size()), j);
    double& a = row[static_cast<std::size_t>(column_a)];
    double& b = row[static_cast<std::size_t>(column_b)];
    const double rotated = rounded(a * cos) - rounded(b * sin);
    b = rounded(a * sin) + rounded(b * cos);
    a = rotated;
  }
}

void rotate_query(const RopeArgs& args, const Token& token, std::int64_t head,
                  Arithmetic arithmetic) {
  const std::int64_t head_dim = args.q.shape[2];
  std::vector<double> row = load_row(args.q, token.index, head);
  if (args.q_gamma) normalize(args, *args.q_gamma, row, {arithmetic, args.q.dtype});
  rotate(args, token, row, {arithmetic, args.q.dtype});
  for (std::int64_t column = 0; column < head_dim; ++column) {
    args.out.store({token.index, head, column}, row[static_cast<std::size_t>(column)]);
  }
}

// Writes the columns that are normalised or rotated: the others keep their bytes.
void rotate_key(const RopeArgs& args, const KvOperandRef& keys, const Token& token,
                std::int64_t head, Arithmetic arithmetic) {
  std::vector<double> row = decode_row(keys, token.sequence, head, token.position);
  if (args.key_gamma) normalize(args, *args.key_gamma, row, {arithmetic, args.q.dtype});
  rotate(args, token, row, {arithmetic, args.q.dtype});
  const RowAddress address = keys.row(token.sequence, head, token.position);
  const auto store = [&](std::int64_t column) {
    keys.layout().store(address, static_cast<std::int32_t>(column),
                        row[static_cast<std::size_t>(column)]);
  };
  for (std::int64_t j = 0; j < args.freqs_cis.shape[1] / 2; ++j) {
    const auto [a, b] = pair_columns(args, keys.layout().width(), j);
    store(a);
    store(b);
  }
  const std::int64_t num_normed = args.key_gamma ? args.key_gamma->shape[0] : 0;
  for (std::int64_t column = 0; column < num_normed; ++column) store(column);
}

}  // namespace

void rope(const RopeArgs& args, Arithmetic arithmetic) {
  const PagedKvOperand keys(args.cache.key(args.layer));
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
      rotate_query(args, token, head, arithmetic);
    }
    if (!args.rotate_key) continue;
    for (std::int64_t head = 0; head < keys.heads().count; ++head) {
      rotate_key(args, keys, token, head, arithmetic);
    }
  }
}

}  // namespace quire::reference
