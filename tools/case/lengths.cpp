// SPDX-License-Identifier: Apache-2.0
#include "tools/case/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tools/case/limits.h"

namespace quire::tools {
namespace {

// One number stands for all `batch` sequences; batch = 0 where only a list can be meant.
std::vector<std::int64_t> read_list(const Fields& fields, const std::string& key,
                                    std::int64_t batch) {
  if (fields.raw(key).is_number()) {
    if (batch == 0) fields.fail(key, "a list, or 'batch' given");
    return std::vector<std::int64_t>(static_cast<std::size_t>(batch),
                                     fields.integer_between(key, 0, kMaxLength));
  }
  return fields.integers(key, 0, kMaxLength);
}

void check_sums(const Fields& fields, const Lengths& lengths) {
  if (lengths.max_keys() > kMaxLength) {
    fields.fail(fmt::format("key 'lengths' must give every sequence at most {} keys, got {}",
                            kMaxLength, lengths.max_keys()));
  }
  if (lengths.tokens() > kMaxTokens) {
    fields.fail(fmt::format("key 'lengths.new' must add up to at most {}, got {}", kMaxTokens,
                            lengths.tokens()));
  }
}

}  // namespace

std::int64_t Lengths::tokens() const {
  return std::accumulate(added.begin(), added.end(), std::int64_t{0});
}

std::int64_t Lengths::total_keys() const {
  std::int64_t sum = 0;
  for (std::int64_t b = 0; b < batch(); ++b) sum += keys(b);
  return sum;
}

std::int64_t Lengths::max_keys() const {
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < batch(); ++b) longest = std::max(longest, keys(b));
  return longest;
}

std::int64_t Lengths::max_added() const {
  return added.empty() ? 0 : *std::max_element(added.begin(), added.end());
}

Lengths compressed(const Lengths& lengths, std::int64_t tokens_per_row) {
  Lengths rows{.added = {}, .cached = {}};
  for (std::size_t b = 0; b < lengths.added.size(); ++b) {
    const std::int64_t cached = lengths.cached[b] / tokens_per_row;
    rows.cached.push_back(cached);
    rows.added.push_back((lengths.cached[b] + lengths.added[b]) / tokens_per_row - cached);
  }
  return rows;
}

namespace {

Lengths read(const Fields& fields, bool takes_keys) {
  const Fields lengths = fields.object("lengths");
  std::int64_t batch =
      lengths.has("batch") ? lengths.integer_between("batch", 1, kMaxListEntries) : 0;
  for (const char* key : {"new", "cached"}) {
    if (batch == 0 && lengths.raw(key).is_array()) {
      batch = static_cast<std::int64_t>(lengths.raw(key).size());
    }
  }
  Lengths result{.added = read_list(lengths, "new", batch),
                 .cached = read_list(lengths, "cached", batch)};
  if (takes_keys && lengths.has("keys")) result.given_keys = read_list(lengths, "keys", batch);
  lengths.finish();
  if (result.added.size() != result.cached.size() || (batch != 0 && result.batch() != batch)) {
    fields.fail("key 'lengths' must give as many 'new' as 'cached'");
  }
  if (!result.given_keys.empty() && result.given_keys.size() != result.added.size()) {
    fields.fail("key 'lengths' must give as many 'keys' as 'new'");
  }
  check_sums(fields, result);
  return result;
}

}  // namespace

Lengths read_lengths(const Fields& fields) {
  return read(fields, false);
}

Lengths read_lengths_and_keys(const Fields& fields) {
  return read(fields, true);
}

}  // namespace quire::tools
