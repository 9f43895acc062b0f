// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_indexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "quire/paged_kv_operand.h"
#include "reference/key_rows.h"
#include "reference/ragged.h"
#include "reference/tensor_row.h"

namespace quire::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHalfUlp = 0x1p-24;  // relative error of one fp32 rounding

struct Score {
  double value;
  double error;  // of an fp32 evaluation
};

// max(0, x), NaN kept.
double relu(double x) {
  return x < 0.0 ? 0.0 : x;
}

// n roundings of relative size u: n·u / (1 - n·u).
double accumulated_error(std::size_t num_roundings) {
  const double sum = static_cast<double>(num_roundings) * kHalfUlp;
  return sum / (1.0 - sum);
}

// One token's query, loaded once for all keys.
struct Query {
  std::vector<std::vector<double>> heads;  // [heads][head_dim]
  std::vector<double> scales;              // [heads]
};

Query load_query(const MlaIndexerArgs& args, std::int64_t token) {
  Query query{.heads = {}, .scales = load_row(args.q_scale, token)};
  for (std::int64_t head = 0; head < args.q.shape[1]; ++head) {
    query.heads.push_back(load_row(args.q, token, head));
  }
  return query;
}

// key [head_dim]: the stored fp8 numbers, not yet multiplied by key_scale.
Score score_key(const Query& query, std::span<const double> key, double key_scale) {
  double sum = 0.0;
  double magnitude = 0.0;
  for (std::size_t head = 0; head < query.heads.size(); ++head) {
    double product = 0.0;
    double product_magnitude = 0.0;
    for (std::size_t i = 0; i < key.size(); ++i) {
      product += query.heads[head][i] * key[i];
      product_magnitude += std::abs(query.heads[head][i] * key[i]);
    }
    sum += relu(product) * query.scales[head];
    magnitude += product_magnitude * std::abs(query.scales[head]);
  }
  // A rounding for each addition and two for the scales; a subnormal result may lose a last bit
  // more.
  const double relative = accumulated_error(query.heads.size() + key.size() + 2);
  return {.value = sum * key_scale,
          .error = relative * magnitude * std::abs(key_scale) +
                   std::numeric_limits<float>::denorm_min()};
}

Token find_token(const MlaIndexerArgs& args, std::int64_t index) {
  const std::vector<Token> tokens = tokens_of(args.row_offsets, args.cache);
  return *std::find_if(tokens.begin(), tokens.end(),
                       [index](const Token& token) { return token.index == index; });
}

std::int64_t num_index_keys(const MlaIndexerArgs& args, std::int64_t sequence) {
  return num_keys(args.row_offsets, args.cache, sequence) / args.tokens_per_key;
}

std::vector<Score> score_keys(const MlaIndexerArgs& args, std::int64_t index) {
  const PagedKvOperand keys(args.cache.key(args.layer));
  const KvOperandRef rows = keys;
  const RowLayout& layout = rows.layout();
  const Token token = find_token(args, index);
  const Query query = load_query(args, index);
  std::vector<Score> scores;
  std::vector<double> key(static_cast<std::size_t>(layout.width()));
  for (std::int64_t t = 0; t < num_index_keys(args, token.sequence); ++t) {
    const RowAddress address = rows.row(token.sequence, 0, t);
    for (std::int32_t column = 0; column < layout.width(); ++column) {
      key[static_cast<std::size_t>(column)] = layout.load_quantized(address, column);
    }
    scores.push_back(score_key(query, key, layout.load_scale(address, 0)));
  }
  return scores;
}

// A token stands at the last key that is whole once it has come, or before the first.
std::vector<std::int64_t> candidates_of(const MlaIndexerArgs& args, const Token& token) {
  const PagedKvOperand keys(args.cache.key(args.layer));
  Token at_key = token;
  at_key.position = (token.position + 1) / args.tokens_per_key - 1;
  return visible_keys(keys, args.mask, at_key,
                      {.first = 0, .last = num_index_keys(args, token.sequence)});
}

// Best first: greater fp32 score, then lower position. NaN after everything.
std::vector<std::int64_t> best_keys(const MlaIndexerArgs& args, const Token& token,
                                    std::vector<std::int64_t> candidates) {
  const std::vector<double> scores = indexer_scores(args, token.index);
  const auto rank = [&scores](std::int64_t key) {
    const auto score = static_cast<float>(scores[static_cast<std::size_t>(key)]);
    return std::pair(!std::isnan(score), std::isnan(score) ? 0.0f : score);
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&rank](std::int64_t a, std::int64_t b) { return rank(a) > rank(b); });
  candidates.resize(static_cast<std::size_t>(args.top_k));
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

void store_scores(const MlaIndexerArgs& args, const Token& token,
                  std::span<const std::int64_t> keys) {
  const std::vector<double> scores = indexer_scores(args, token.index);
  for (std::int64_t slot = 0; slot < args.top_k; ++slot) {
    const auto index = static_cast<std::size_t>(slot);
    const bool is_taken = index < keys.size();
    args.scores->store({token.index, slot},
                       is_taken ? scores[static_cast<std::size_t>(keys[index])] : -kInfinity);
  }
}

// Whether fp32 may give this number for the score.
bool is_score(double number, const Score& score) {
  if (std::isnan(score.value)) return std::isnan(number);
  const double largest = std::numeric_limits<float>::max();
  if (std::abs(score.value) + score.error >= largest) return true;  // sums may overflow
  return std::abs(number - score.value) <= score.error + kHalfUlp * std::abs(score.value);
}

// `count` visible positions in ascending order, then -1.
std::string order_fault(std::span<const std::int32_t> selected, std::size_t count,
                        std::span<const std::int64_t> candidates) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::binary_search(candidates.begin(), candidates.end(), selected[i])) {
      return fmt::format("slot {} holds {}, which the token does not see", i, selected[i]);
    }
    if (i > 0 && selected[i] <= selected[i - 1]) {
      return fmt::format("slot {} holds {}, not more than slot {}", i, selected[i], i - 1);
    }
  }
  for (std::size_t i = count; i < selected.size(); ++i) {
    if (selected[i] != -1) return fmt::format("slot {} holds {}, not -1", i, selected[i]);
  }
  return {};
}

// The least of the best that chosen keys may score against the most that left-out keys must score.
std::string score_fault(std::span<const Score> scores, std::span<const std::int32_t> chosen,
                        std::span<const std::int64_t> candidates) {
  double highest_possible = kInfinity;
  double lowest_possible = -kInfinity;
  for (const std::int64_t key : candidates) {
    const Score score = scores[static_cast<std::size_t>(key)];
    const double value = std::isnan(score.value) ? -kInfinity : score.value;
    const double error = std::isnan(score.value) ? 0.0 : score.error;
    if (std::binary_search(chosen.begin(), chosen.end(), key)) {
      highest_possible = std::min(highest_possible, value + error);
    } else {
      lowest_possible = std::max(lowest_possible, value - error);
    }
  }
  if (highest_possible >= lowest_possible) return {};
  return fmt::format("a chosen key scores at most {}, a left-out one at least {}", highest_possible,
                     lowest_possible);
}

}  // namespace

void mla_indexer(const MlaIndexerArgs& args) {
  for (const Token& token : tokens_of(args.row_offsets, args.cache)) {
    std::vector<std::int64_t> keys = candidates_of(args, token);
    if (static_cast<std::int64_t>(keys.size()) > args.top_k) {
      keys = best_keys(args, token, std::move(keys));
    }
    for (std::int64_t slot = 0; slot < args.top_k; ++slot) {
      const auto index = static_cast<std::size_t>(slot);
      args.out.store({token.index, slot},
                     index < keys.size() ? static_cast<double>(keys[index]) : -1.0);
    }
    if (args.scores.has_value()) store_scores(args, token, keys);
  }
}

std::vector<double> indexer_scores(const MlaIndexerArgs& args, std::int64_t token) {
  std::vector<double> values;
  for (const Score& score : score_keys(args, token)) values.push_back(score.value);
  return values;
}

std::vector<double> indexer_score_errors(const MlaIndexerArgs& args, std::int64_t token) {
  std::vector<double> errors;
  for (const Score& score : score_keys(args, token)) errors.push_back(score.error);
  return errors;
}

std::string selection_fault(const MlaIndexerArgs& args, std::int64_t token,
                            std::span<const std::int32_t> selected) {
  const std::vector<std::int64_t> candidates = candidates_of(args, find_token(args, token));
  const auto count = std::min(candidates.size(), static_cast<std::size_t>(args.top_k));
  const std::string fault = order_fault(selected, count, candidates);
  if (!fault.empty() || count == candidates.size()) return fault;
  return score_fault(score_keys(args, token), selected.first(count), candidates);
}

std::string scores_fault(const MlaIndexerArgs& args, std::int64_t token,
                         std::span<const std::int32_t> selected, std::span<const float> numbers) {
  const std::vector<Score> scores = score_keys(args, token);
  for (std::size_t i = 0; i < selected.size(); ++i) {
    const bool is_right = selected[i] < 0
                              ? numbers[i] == -kInfinity
                              : is_score(numbers[i], scores[static_cast<std::size_t>(selected[i])]);
    if (is_right) continue;
    return fmt::format(
        "slot {} has score {}, key {} has {}", i, numbers[i], selected[i],
        selected[i] < 0 ? -kInfinity : scores[static_cast<std::size_t>(selected[i])].value);
  }
  return {};
}

}  // namespace quire::reference
