// SPDX-License-Identifier: Apache-2.0
// Bounds of the part "key_intervals" or "key_intervals:KIND" of a case's mask: two columns of one i32 [tokens, 2], as
// engines bring them.
//   any        (the default) two random numbers in order, up to a little past the sequence's keys
//   hostile    anything goes: bounds that cross, negative ones, ends of int32
//   documents  packed documents of 24 keys: each token sees its own, whole
//   spans      text and images of 8 tokens in turns: text sees what stands before it, an image all of itself too
//   ranks      causal over the keys of one rank of three, which tokens are dealt to in turns
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/case/lengths.h"
#include "tools/case/memory.h"

namespace quire::tools {

// Whether the text of a part is one of the above.
bool is_key_intervals(const std::string& part);

struct KeyIntervals {
  TensorView begin{};  // i32 [tokens], stride 2
  TensorView end{};
};

// `blind`, sorted: tokens whose interval is empty.
KeyIntervals build_key_intervals(Memory& memory, const std::string& part,
                                 const std::vector<std::int64_t>& blind, const Lengths& lengths,
                                 std::uint64_t seed);

}  // namespace quire::tools
