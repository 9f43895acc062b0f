// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/stack.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

namespace quire::tools::demo {

Vocabulary::Vocabulary(TokenId size, std::int64_t hidden, std::uint64_t seed)
    : embedding_(Matrix::random(size, hidden, "embedding", seed, 1.0)),
      projection_(Matrix::random(size, hidden, "vocabulary projection", seed, 1.0)) {}

Matrix Vocabulary::embed(std::span<const TokenId> tokens) const {
  Matrix hidden(static_cast<std::int64_t>(tokens.size()), embedding_.columns);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::ranges::copy(embedding_.row(tokens[i]), hidden.row(static_cast<std::int64_t>(i)).begin());
  }
  return hidden;
}

std::vector<TokenId> Vocabulary::choose(const Matrix& hidden,
                                        std::span<const std::int64_t> rows) const {
  Matrix last(static_cast<std::int64_t>(rows.size()), hidden.columns);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(hidden.row(rows[i]), last.row(static_cast<std::int64_t>(i)).begin());
  }
  const Matrix scores = project(rms_normalized(last), projection_);
  std::vector<TokenId> tokens;
  for (std::int64_t row = 0; row < scores.rows; ++row) {
    const std::span<const float> values = scores.row(row);
    tokens.push_back(static_cast<TokenId>(std::ranges::max_element(values) - values.begin()));
  }
  return tokens;
}

void require_finite(const Matrix& hidden, Referee& referee) {
  std::optional<std::string> fault;
  for (std::int64_t row = 0; row < hidden.rows && !fault; ++row) {
    const auto is_finite = [](float value) { return std::isfinite(value); };
    if (!std::ranges::all_of(hidden.row(row), is_finite)) {
      fault = "token " + std::to_string(row) + " is not finite";
    }
  }
  referee.require("hidden state", fault);
}

void copy_pages_in(const PagePool& pool, const Batch& batch, Referee& referee) {
  referee.call(kCopyPages, {.cache = pool.view(batch.page_table, batch.cache_lengths),
                            .pairs = batch.copies.view()});
}

Tensor make_freqs_cis(std::int64_t max_positions, std::int64_t rope_dim) {
  Tensor freqs(DType::f32, {max_positions, rope_dim});
  for (std::int64_t position = 0; position < max_positions; ++position) {
    for (std::int64_t pair = 0; pair < rope_dim / 2; ++pair) {
      const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(rope_dim);
      const double angle = static_cast<double>(position) * std::pow(10000.0, -exponent);
      freqs.view().store({position, 2 * pair}, std::cos(angle));
      freqs.view().store({position, 2 * pair + 1}, std::sin(angle));
    }
  }
  return freqs;
}

}  // namespace quire::tools::demo
