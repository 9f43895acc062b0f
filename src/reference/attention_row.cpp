// SPDX-License-Identifier: Apache-2.0
#include "reference/attention_row.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace quire::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

double largest_score(std::span<const double> scores) {
  double maximum = -kInfinity;
  for (const double score : scores) {
    if (score > maximum || std::isnan(score)) maximum = score;
  }
  return maximum;
}

double modify_score(const ScoreModifier& modifier, double raw, std::int64_t query, std::int64_t key,
                    Arithmetic arithmetic, DType dtype) {
  double score = intermediate(arithmetic, dtype, raw);
  score = intermediate(arithmetic, dtype, score * modifier.scale);
  if (modifier.softcap > 0.0) {
    score = modifier.softcap * std::tanh(score / modifier.softcap);
    score = intermediate(arithmetic, dtype, score);
  }
  if (modifier.alibi_slope != 0.0) {
    score += modifier.alibi_slope * static_cast<double>(key - query);
    score = intermediate(arithmetic, dtype, score);
  }
  return score;
}

AttentionRow attend(std::span<const double> scores, std::span<const std::span<const double>> values,
                    std::int64_t value_dim, Arithmetic arithmetic, DType dtype) {
  AttentionRow row{.out = std::vector<double>(static_cast<std::size_t>(value_dim), 0.0)};
  const double maximum = largest_score(scores);
  if (maximum == -kInfinity) return row;
  std::vector<double> weights;
  double sum = 0.0;
  for (const double score : scores) {
    weights.push_back(in_register(arithmetic, std::exp(score - maximum)));
    sum = in_register(arithmetic, sum + weights.back());
  }
  for (double& weight : weights) {
    weight = intermediate(arithmetic, dtype, in_register(arithmetic, weight / sum));
  }
  with_register(arithmetic, [&](const auto& round) {
    for (std::size_t j = 0; j < weights.size(); ++j) {
      for (std::size_t column = 0; column < row.out.size(); ++column) {
        row.out[column] = round(row.out[column] + weights[j] * values[j][column]);
      }
    }
  });
  for (double& element : row.out) element = intermediate(arithmetic, dtype, element);
  row.lse = in_register(arithmetic, maximum + std::log(sum));
  return row;
}

AttentionRow attend_fp8(std::span<const double> scores,
                        std::span<const std::span<const double>> values, std::int64_t value_dim,
                        DType dtype) {
  constexpr double kLargestWeight = 256.0;
  AttentionRow row{.out = std::vector<double>(static_cast<std::size_t>(value_dim), 0.0)};
  const double maximum = largest_score(scores);
  if (maximum == -kInfinity) return row;
  double sum = 0.0;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double weight = static_cast<float>(kLargestWeight * std::exp(scores[j] - maximum));
    const double rounded = round_to(DType::fp8_e4m3, weight);
    sum = static_cast<float>(sum + weight);
    for (std::size_t column = 0; column < row.out.size(); ++column) {
      row.out[column] = static_cast<float>(row.out[column] + rounded * values[j][column]);
    }
  }
  for (double& element : row.out) element = round_to(dtype, static_cast<float>(element / sum));
  row.lse = static_cast<float>(maximum + std::log(sum / kLargestWeight));
  return row;
}

std::vector<double> round_to_fp8(std::vector<double> q) {
  double highest = 0.0;
  for (const double number : q) highest = std::max(highest, std::abs(number));
  if (highest == 0.0 || !std::isfinite(highest)) return q;
  const int shift = 7 - std::ilogb(highest);
  for (double& number : q) {
    number = std::ldexp(round_to(DType::fp8_e4m3, std::ldexp(number, shift)), -shift);
  }
  return q;
}

AttentionRow merge(const AttentionRow& left, const AttentionRow& right, Arithmetic arithmetic) {
  const auto kept = [&](double value) { return in_register(arithmetic, value); };
  AttentionRow row{.out = std::vector<double>(left.out.size(), 0.0)};
  if (left.lse == -kInfinity && right.lse == -kInfinity) return row;
  if (left.lse == -kInfinity) return right;
  if (right.lse == -kInfinity) return left;
  const double lses[] = {left.lse, right.lse};
  const double maximum = largest_score(lses);
  const double left_part = kept(std::exp(left.lse - maximum));
  const double right_part = kept(std::exp(right.lse - maximum));
  const double sum = kept(left_part + right_part);
  row.lse = kept(maximum + std::log(sum));
  for (std::size_t column = 0; column < row.out.size(); ++column) {
    // Quotients, not exp(lse - row.lse): far from 0 an LSE has no room for the logarithm of the sum.
    const double shared = kept(kept(left_part / sum) * left.out[column]);
    row.out[column] = kept(shared + kept(right_part / sum) * right.out[column]);
  }
  return row;
}

AttentionRow add_sink(const AttentionRow& row, double sink) {
  const AttentionRow alone{.out = std::vector<double>(row.out.size(), 0.0), .lse = sink};
  return merge(row, alone);
}

void store_row(const AttentionRow& row, std::int64_t token, std::int64_t head,
               const TensorView& out, const std::optional<TensorView>& lse) {
  for (std::size_t column = 0; column < row.out.size(); ++column) {
    out.store({token, head, static_cast<std::int64_t>(column)}, row.out[column]);
  }
  if (lse) lse->store({token, head}, row.lse);
}

}  // namespace quire::reference
