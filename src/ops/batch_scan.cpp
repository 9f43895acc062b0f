// SPDX-License-Identifier: Apache-2.0
#include "ops/batch_scan.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "ops/memory_span.h"

namespace quire::ops {
namespace {

constexpr std::uint32_t kSignBit = 0x80000000U;

// Signed numbers in the order of unsigned ones: SSE2 compares no others.
std::int32_t ordered(std::uint32_t value) {
  return static_cast<std::int32_t>(value ^ kSignBit);
}

// first, term(0), …, term(count - 1) combined, in any order. Four streams go into one step: a chain of single steps would
// wait for itself.
template <typename Value, typename Combine, typename Term>
Value reduce(std::int64_t count, Value first, Combine combine, Term term) {
  Value value = first;
  const std::int64_t part = count / 4;
  for (std::int64_t i = 0; i < part; ++i) {
    value = combine(value, combine(combine(term(i), term(part + i)),
                                   combine(term(2 * part + i), term(3 * part + i))));
  }
  for (std::int64_t i = 4 * part; i < count; ++i) value = combine(value, term(i));
  return value;
}

// All sequences have `step` new tokens, as in decoding.
bool is_even(const std::uint32_t* offsets, std::int64_t batch, std::uint32_t step) {
  const auto difference = [=](std::int64_t b) { return (offsets[b + 1] - offsets[b]) ^ step; };
  return reduce(batch, 0U, std::bit_or(), difference) == 0;
}

BatchScan scan_even_batch(std::int64_t step, const std::uint32_t* lengths, std::int64_t batch) {
  const std::int32_t longest = reduce(
      batch, ordered(0), [](std::int32_t a, std::int32_t b) { return std::max(a, b); },
      [=](std::int64_t b) { return ordered(lengths[b]); });
  const std::uint64_t total = reduce(batch, std::uint64_t{0}, std::plus(),
                                     [=](std::int64_t b) { return std::uint64_t{lengths[b]}; });
  const std::int64_t keys = step + (static_cast<std::uint32_t>(longest) ^ kSignBit);
  return {.max_new_tokens = step,
          .max_keys = keys,
          .total_keys = static_cast<std::int64_t>(total) + batch * step,
          .end_position = step > 0 ? keys : 0};
}

}  // namespace

BatchScan scan_batch(const std::uint32_t* offsets, const std::uint32_t* lengths,
                     std::int64_t batch) {
  if (batch == 0) return {};
  const std::uint32_t step = offsets[1] - offsets[0];
  // Sums that wrap around 2^32 are steps back.
  const bool adds_up = saturating_product(batch, step) == std::int64_t{offsets[batch]} - offsets[0];
  if (adds_up && is_even(offsets, batch, step)) return scan_even_batch(step, lengths, batch);
  BatchScan scan;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t added = std::int64_t{offsets[b + 1]} - offsets[b];
    const std::int64_t keys = added + lengths[b];
    scan.is_monotone = scan.is_monotone && added >= 0;
    scan.max_new_tokens = std::max(scan.max_new_tokens, added);
    scan.max_keys = std::max(scan.max_keys, keys);
    scan.total_keys += keys;
    scan.end_position = std::max(scan.end_position, added > 0 ? keys : 0);
  }
  return scan;
}

bool has_bad_page_id(const std::uint32_t* ids, std::int64_t count, std::int64_t num_pages) {
  constexpr std::int64_t kNoPage = std::numeric_limits<std::uint32_t>::max();
  if (num_pages >= kNoPage) return false;
  // One further, 0xFFFFFFFF is 0 and all from num_pages + 2 on is bad. Both sums wrap, which makes the second one the
  // other half of ordered().
  const std::int32_t most = ordered(static_cast<std::uint32_t>(num_pages + 1));
  const auto is_bad = [=](std::int64_t i) {
    return static_cast<std::int32_t>(ids[i] + (kSignBit + 1)) > most ? -1 : 0;
  };
  return reduce(count, 0, std::bit_or(), is_bad) != 0;
}

}  // namespace quire::ops
