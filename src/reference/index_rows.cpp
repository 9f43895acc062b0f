// SPDX-License-Identifier: Apache-2.0
#include "reference/index_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/arithmetic.h"
#include "reference/quantize_fp8.h"
#include "reference/ragged.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

constexpr DType kCode = DType::fp8_e4m3;

void normalize(std::span<double> row, const IndexRowRule& rule) {
  const auto count = static_cast<double>(row.size());
  // Divided once at the end: the mean of equal numbers is that number, and nothing is left to be scaled up.
  double sum = 0.0;
  for (const double x : row) sum += x;
  const double mean = sum / count;
  double squares = 0.0;
  for (const double x : row) squares += (x - mean) * (x - mean);
  const double factor = 1.0 / std::sqrt(squares / count + rule.epsilon);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i);
    row[i] = (row[i] - mean) * factor * rule.norm_weight->load({column}) +
             rule.norm_bias->load({column});
  }
}

void rotate(std::span<double> row, const IndexRowRule& rule, std::int64_t position,
            Arithmetic arithmetic) {
  const std::int64_t half = rule.freqs_cis->shape[1] / 2;
  for (std::int64_t j = 0; j < half; ++j) {
    const double cosine = rule.freqs_cis->load({position, 2 * j});
    const double sine = rule.freqs_cis->load({position, 2 * j + 1});
    double& a = row[static_cast<std::size_t>(rule.interleaved ? 2 * j : j)];
    double& b = row[static_cast<std::size_t>(rule.interleaved ? 2 * j + 1 : j + half)];
    const double rotated = in_register(arithmetic, a * cosine - b * sine);
    b = in_register(arithmetic, a * sine + b * cosine);
    a = rotated;
  }
}

double quotient(double value, double scale) {
  return scale == 0.0 && !std::isnan(value) ? 0.0 : value / scale;
}

double stored_scale(std::span<const double> values, ScaleRounding rounding) {
  return round_to(DType::f32, fp8_scale(largest_magnitude(values), kCode, rounding));
}

double weight_of(const QuantizeIndexQueriesArgs& args, std::int64_t token, std::int64_t head) {
  return args.weights ? args.weights->load({token, head}) : 1.0;
}

}  // namespace

IndexRowRule index_row_rule(const StoreIndexKeysArgs& args) {
  return {.norm_weight = args.norm_weight,
          .norm_bias = args.norm_bias,
          .epsilon = args.epsilon,
          .freqs_cis = args.freqs_cis,
          .interleaved = args.interleaved,
          .hadamard = args.hadamard};
}

IndexRowRule index_row_rule(const QuantizeIndexQueriesArgs& args) {
  return {.freqs_cis = args.freqs_cis, .interleaved = args.interleaved, .hadamard = args.hadamard};
}

std::vector<double> hadamard(std::span<const double> row, Arithmetic arithmetic) {
  const double norm = 1.0 / std::sqrt(static_cast<double>(row.size()));
  std::vector<double> signs(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) signs[i] = std::popcount(i) % 2 == 0 ? 1.0 : -1.0;
  std::vector<double> result(row.size());
  // Sums in the order of i, all of them side by side: each waits for its own last term.
  with_register(arithmetic, [&](const auto& round) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (std::size_t j = 0; j < row.size(); ++j) {
        result[j] = round(result[j] + signs[i & j] * row[i]);
      }
    }
    for (double& sum : result) sum = round(sum * norm);
  });
  return result;
}

std::vector<double> IndexRowRule::apply(std::vector<double> row, std::int64_t position,
                                        Arithmetic arithmetic) const {
  if (norm_weight) normalize(row, *this);
  if (freqs_cis) rotate(row, *this, position, arithmetic);
  return hadamard ? reference::hadamard(row, arithmetic) : row;
}

void store_index_keys(const StoreIndexKeysArgs& args) {
  const PagedKvOperand keys(args.cache.key(args.layer));
  const KvOperandRef rows = keys;
  const RowLayout& layout = rows.layout();
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    const std::vector<double> row =
        index_row_rule(args).apply(load_row(args.x, token.index), token.position);
    const double scale = stored_scale(row, args.scale_rounding);
    const RowAddress address = rows.row(token.sequence, 0, token.position);
    if (address.row == nullptr) continue;
    layout.store_scale(address, 0, scale);
    for (std::int32_t column = 0; column < layout.width(); ++column) {
      layout.store(address, column, quotient(row[static_cast<std::size_t>(column)], scale));
    }
  }
}

void quantize_index_queries(const QuantizeIndexQueriesArgs& args, Arithmetic arithmetic) {
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
      const std::vector<double> row = index_row_rule(args).apply(
          load_row(args.q, token.index, head), token.position, arithmetic);
      const double scale = stored_scale(row, args.scale_rounding);
      const double weight =
          in_register(arithmetic, weight_of(args, token.index, head) * args.factor);
      args.q_scale.store({token.index, head}, scale * weight);
      for (std::int64_t column = 0; column < args.q.shape[2]; ++column) {
        args.out.store({token.index, head, column},
                       quotient(row[static_cast<std::size_t>(column)], scale));
      }
    }
  }
}

}  // namespace quire::reference
