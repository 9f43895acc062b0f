// SPDX-License-Identifier: Apache-2.0
#include "reference/latent_products.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quire/element.h"

namespace quire::reference {
namespace {

constexpr std::int32_t kColumns = 128;  // of a sum of q · k, and of a power of two of q'
constexpr std::int64_t kTileKeys = 64;  // of a sum of weights · V, and of a power of two of scales
constexpr double kLargestWeight = 256.0;

const RowPart& part_of(const RowFormat& format, std::int32_t column) {
  return format.parts[static_cast<std::size_t>(format.locate(column).part)];
}

// Columns from `first` on that share a scale: slots in the row are counted from the part's start.
std::int32_t columns_of_scale(const RowFormat& format, std::int32_t first) {
  const RowPart& part = part_of(format, first);
  const std::int32_t index = format.locate(first).index;
  const std::int32_t rest = part.width - index;
  if (part.scale_source == ScaleSource::none) return rest;
  const std::int32_t place = part.scale_source == ScaleSource::plane ? first : index;
  return std::min(rest, part.granularity - place % part.granularity);
}

// The smallest power of two that is not below the largest scale; 1 where that is 0, infinite or NaN.
double power_above(double largest) {
  if (!std::isfinite(largest) || largest <= 0.0) return 1.0;
  int exponent = 0;
  return std::ldexp(1.0, std::frexp(largest, &exponent) == 0.5 ? exponent - 1 : exponent);
}

double round_weight(WeightRounding rounding, double weight) {
  if (!std::isfinite(weight)) return weight;
  const double rounded = round_to(DType::fp8_e4m3, weight);
  if (rounding == WeightRounding::e4m3) return rounded;
  return rounded + round_to(DType::fp8_e5m2, weight - rounded);
}

}  // namespace

bool LatentProducts::take(const RowFormat& format, std::int64_t latent) {
  return format.parts[0].dtype == DType::fp8_e4m3 && format.parts[0].width >= latent;
}

LatentProducts::LatentProducts(const KvOperandRef& operand, std::int64_t sequence,
                               std::int64_t num_keys, std::int64_t latent, Arithmetic arithmetic)
    : latent_(latent), arithmetic_(arithmetic) {
  const RowLayout& layout = operand.layout();
  const auto end = static_cast<std::int32_t>(latent);
  for (std::int32_t first = 0; first < layout.width();) {
    const std::int32_t side = first < end ? 0 : end;  // where latent or rope columns begin
    const std::int32_t count =
        std::min({(first < end ? end : layout.width()) - first,
                  kColumns - (first - side) % kColumns, columns_of_scale(layout.format, first)});
    runs_.push_back({.first = static_cast<std::size_t>(first),
                     .count = static_cast<std::size_t>(count),
                     .is_e4m3 = part_of(layout.format, first).dtype == DType::fp8_e4m3,
                     .is_latent = first < end});
    first += count;
  }
  for (std::int64_t key = 0; key < num_keys; ++key) {
    const RowAddress address = operand.row(sequence, 0, key);
    if (key % kTileKeys == 0) powers_.emplace_back(runs_.size(), 0.0);
    Row& row = rows_.emplace_back();
    for (std::int32_t column = 0; column < layout.width(); ++column) {
      row.codes.push_back(layout.load_quantized(address, column));
    }
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      row.scales.push_back(layout.load_scale(address, static_cast<std::int32_t>(runs_[run].first)));
      if (address.row == nullptr) continue;
      powers_.back()[run] = std::fmax(powers_.back()[run], row.scales.back());
    }
  }
  for (std::vector<double>& powers : powers_) {
    std::ranges::transform(powers, powers.begin(), power_above);
  }
}

std::vector<double> LatentProducts::round_query(std::span<const double> q) const {
  std::vector<double> rounded(q.begin(), q.end());
  const auto latent = static_cast<std::size_t>(latent_);
  for (std::size_t first = 0; first < q.size();) {
    const std::size_t side = first < latent ? latent : q.size();
    const std::size_t count = std::min<std::size_t>(kColumns, side - first);
    // Rope columns are the last part of a row.
    if (first < latent || runs_.back().is_e4m3) {
      const std::span<const double> group = q.subspan(first, count);
      std::ranges::copy(round_to_fp8({group.begin(), group.end()}),
                        rounded.begin() + static_cast<std::ptrdiff_t>(first));
    }
    first += count;
  }
  return rounded;
}

std::span<const double> LatentProducts::codes(std::int64_t key, const Run& run) const {
  return std::span(rows_[static_cast<std::size_t>(key)].codes).subspan(run.first, run.count);
}

double LatentProducts::scale(std::int64_t key, std::size_t run) const {
  return rows_[static_cast<std::size_t>(key)].scales[run];
}

double LatentProducts::tile_power(std::int64_t key, std::size_t run) const {
  return powers_[static_cast<std::size_t>(key / kTileKeys)][run];
}

std::vector<double> LatentProducts::scores(std::span<const double> q,
                                           std::span<const std::int64_t> keys) const {
  std::vector<double> sums(keys.size(), 0.0);
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    const std::span<const double> part = q.subspan(runs_[run].first, runs_[run].count);
    std::vector<std::span<const double>> rights;
    for (const std::int64_t key : keys) rights.push_back(codes(key, runs_[run]));
    std::vector<double> products;
    if (runs_[run].is_e4m3 && arithmetic_.kind == Arithmetic::Kind::random) {
      for (const std::span<const double> right : rights) products.push_back(short_dot(part, right));
    } else {
      products = dots(arithmetic_, part, rights);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      sums[i] = in_register(arithmetic_, sums[i] + scale(keys[i], run) * products[i]);
    }
  }
  return sums;
}

// Σ_j weights[j] · the codes of keys[j] in the columns of a run.
std::vector<double> LatentProducts::sum_values(std::span<const std::int64_t> keys,
                                               std::span<const double> weights,
                                               const Run& run) const {
  std::vector<double> sums(run.count, 0.0);
  if (arithmetic_.kind == Arithmetic::Kind::random) {
    std::vector<double> column(keys.size());
    for (std::size_t i = 0; i < run.count; ++i) {
      for (std::size_t j = 0; j < keys.size(); ++j) column[j] = codes(keys[j], run)[i];
      sums[i] = short_dot(weights, column);
    }
    return sums;
  }
  with_register(arithmetic_, [&](const auto& round) {
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const std::span<const double> values = codes(keys[j], run);
      for (std::size_t i = 0; i < run.count; ++i) sums[i] = round(sums[i] + weights[j] * values[i]);
    }
  });
  return sums;
}

// The keys of one tile.
void LatentProducts::add_tile(std::span<const std::int64_t> keys, std::span<const double> weights,
                              WeightRounding rounding, std::vector<double>& out) const {
  for (std::size_t run = 0; run < runs_.size() && runs_[run].is_latent; ++run) {
    const double power = tile_power(keys.front(), run);
    std::vector<double> scaled;
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const double weight = in_register(arithmetic_, weights[j] * (scale(keys[j], run) / power));
      scaled.push_back(round_weight(rounding, weight));
    }
    const std::vector<double> sums = sum_values(keys, scaled, runs_[run]);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      double& element = out[runs_[run].first + i];
      element = in_register(arithmetic_, element + power * sums[i]);
    }
  }
}

AttentionRow LatentProducts::attend(std::span<const double> scores,
                                    std::span<const std::int64_t> keys, WeightRounding rounding,
                                    DType dtype) const {
  AttentionRow row{.out = std::vector<double>(static_cast<std::size_t>(latent_), 0.0)};
  const double maximum = largest_score(scores);
  if (maximum == -std::numeric_limits<double>::infinity()) return row;
  std::vector<double> unrounded;
  double sum = 0.0;
  for (const double score : scores) {
    unrounded.push_back(in_register(arithmetic_, kLargestWeight * std::exp(score - maximum)));
    sum = in_register(arithmetic_, sum + unrounded.back());
  }
  for (std::size_t first = 0; first < keys.size();) {
    std::size_t last = first;
    while (last < keys.size() && keys[last] / kTileKeys == keys[first] / kTileKeys) ++last;
    add_tile(keys.subspan(first, last - first), std::span(unrounded).subspan(first, last - first),
             rounding, row.out);
    first = last;
  }
  for (double& element : row.out) {
    element = intermediate(arithmetic_, dtype, in_register(arithmetic_, element / sum));
  }
  row.lse = in_register(arithmetic_, maximum + std::log(sum / kLargestWeight));
  return row;
}

}  // namespace quire::reference
