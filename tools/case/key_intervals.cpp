// SPDX-License-Identifier: Apache-2.0
#include "tools/case/key_intervals.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tools/case/random_stream.h"

namespace quire::tools {
namespace {

constexpr std::int64_t kDocumentKeys = 24;
constexpr std::int64_t kSpanTokens = 8;
constexpr std::int64_t kRanks = 3;
constexpr std::int64_t kPastKeys = 4;  // bounds of "any" reach so far past the keys

struct Interval {
  std::int64_t begin;
  std::int64_t end;
};

Interval random_interval(std::int64_t keys, std::uint64_t seed) {
  const std::int64_t one = integer_at(seed, 0, keys + kPastKeys);
  const std::int64_t other = integer_at(seed, 1, keys + kPastKeys);
  return {.begin = std::min(one, other), .end = std::max(one, other)};
}

std::int64_t hostile_bound(std::int64_t keys, std::uint64_t seed, std::uint64_t which) {
  const std::int64_t inside = integer_at(seed, 2 * which, keys + 1);
  switch (integer_at(seed, 2 * which + 1, 8)) {
    case 0:
      return std::numeric_limits<std::int32_t>::min();
    case 1:
      return std::numeric_limits<std::int32_t>::max();
    case 2:
      return -1 - inside;
    case 3:
      return keys + inside;
    default:
      return inside;
  }
}

// Of a token at `position` of a sequence of `keys`.
Interval interval_of(const std::string& part, std::int64_t position, std::int64_t keys,
                     std::uint64_t seed) {
  if (part == "key_intervals:documents") {
    const std::int64_t document = std::max<std::int64_t>(position, 0) / kDocumentKeys;
    return {.begin = document * kDocumentKeys, .end = (document + 1) * kDocumentKeys};
  }
  if (part == "key_intervals:spans") {
    const std::int64_t span = std::max<std::int64_t>(position, 0) / kSpanTokens;
    const bool is_image = span % 2 == 1;
    return {.begin = 0, .end = is_image ? (span + 1) * kSpanTokens : position + 1};
  }
  if (part == "key_intervals:ranks") {
    return {.begin = 0, .end = (position + kRanks - 1) / kRanks};
  }
  if (part == "key_intervals:hostile") {
    return {.begin = hostile_bound(keys, seed, 0), .end = hostile_bound(keys, seed, 1)};
  }
  return random_interval(keys, seed);
}

}  // namespace

bool is_key_intervals(const std::string& part) {
  constexpr std::array kParts = {"key_intervals",         "key_intervals:any",
                                 "key_intervals:hostile", "key_intervals:documents",
                                 "key_intervals:spans",   "key_intervals:ranks"};
  return std::ranges::find(kParts, part) != kParts.end();
}

KeyIntervals build_key_intervals(Memory& memory, const std::string& part,
                                 const std::vector<std::int64_t>& blind, const Lengths& lengths,
                                 std::uint64_t seed) {
  const TensorView bounds = memory.allocate(part, DType::i32, {lengths.tokens(), 2});
  const std::uint64_t stream = seed_of(part, seed);
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    const std::int64_t cached = lengths.cached[static_cast<std::size_t>(b)];
    for (std::int64_t i = 0; i < lengths.added[static_cast<std::size_t>(b)]; ++i, ++token) {
      Interval interval = interval_of(part, cached + i, lengths.keys(b),
                                      hash_of(stream, static_cast<std::uint64_t>(token)));
      if (std::ranges::binary_search(blind, token)) interval.end = interval.begin;
      auto* row = bounds.as<std::int32_t>() + 2 * token;
      row[0] = static_cast<std::int32_t>(interval.begin);
      row[1] = static_cast<std::int32_t>(interval.end);
    }
  }
  KeyIntervals columns{.begin = bounds, .end = bounds};
  columns.begin.rank = columns.end.rank = 1;
  // Without tokens there is no second column, and no byte of it that is the buffer's.
  if (token > 0) columns.end.data = bounds.as<std::int32_t>() + 1;
  return columns;
}

}  // namespace quire::tools
