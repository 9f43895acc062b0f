// SPDX-License-Identifier: Apache-2.0
// The ragged batch of a case: per sequence the new tokens of this call and the tokens cached before
// it.
//   "lengths": {"new": [1, 0, 5], "cached": [15, 3, 0]}      one number each, or a list
//   "lengths": {"batch": 64, "new": 1, "cached": 8191}       the same for the whole batch
//   "keys": [15, 0, 2]                                       of each sequence, where the op takes key_lengths
#pragma once

#include <cstdint>
#include <vector>

#include "tools/case/fields.h"

namespace quire::tools {

struct Lengths {
  std::vector<std::int64_t> added;
  std::vector<std::int64_t> cached;
  std::vector<std::int64_t> given_keys{};  // empty: those that are cached and new

  std::int64_t batch() const { return static_cast<std::int64_t>(added.size()); }
  std::int64_t keys(std::int64_t sequence) const {
    const auto s = static_cast<std::size_t>(sequence);
    return given_keys.empty() ? added[s] + cached[s] : given_keys[s];
  }
  std::int64_t tokens() const;  // new tokens of all sequences
  std::int64_t total_keys() const;
  std::int64_t max_keys() const;
  std::int64_t max_added() const;
};

// The rows that so many tokens become, tokens_per_row of them each: cached ones, and those that become whole.
Lengths compressed(const Lengths& lengths, std::int64_t tokens_per_row);

Lengths read_lengths(const Fields& fields);
// The same, with "keys" where they are given.
Lengths read_lengths_and_keys(const Fields& fields);

}  // namespace quire::tools
