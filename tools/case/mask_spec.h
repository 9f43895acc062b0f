// SPDX-License-Identifier: Apache-2.0
// The mask of a case ("causal", "sliding_window_causal:8", …, "tree", "key_intervals"), and how many keys it leaves
// each query: the count behind flops() and behind "this row is empty". Counted here, not by the
// library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quire/mask.h"
#include "tools/case/cache_spec.h"

namespace quire::tools {

struct MaskSpec {
  // Parts joined by " & " or " | " from left to right. "tree" is random ancestors, "key_intervals:KIND" in key_intervals.h
  std::string text = "causal";
  // Sorted. Tree: tokens whose row of bits is all zero; key_intervals: tokens whose interval is empty.
  std::vector<std::int64_t> blind_tokens{};

  bool is_simple() const { return text == "causal" || text == "full" || text == "null"; }
};

MaskSpec read_mask(const Fields& fields, const CacheSpec& cache, const Lengths& lengths);

// Allocates the bits of a tree and the bounds of intervals.
Mask build_mask(Memory& memory, const MaskSpec& spec, const Lengths& lengths, std::uint64_t seed);

// Keys that each token sees, in token order; unassigned pages hold none.
std::vector<std::int64_t> count_visible(const Mask& mask, const MaskSpec& spec,
                                        const CacheSpec& cache, const Lengths& lengths);
// Their sum, for a mask that needs no memory yet.
double total_visible(const MaskSpec& spec, const CacheSpec& cache, const Lengths& lengths);

// Tokens that see nothing.
std::vector<std::int64_t> empty_tokens(const std::vector<std::int64_t>& visible);

}  // namespace quire::tools
