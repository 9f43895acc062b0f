// SPDX-License-Identifier: Apache-2.0
// The lists of blocks of a block-sparse case, i32 [tokens, kv_heads, max_blocks]:
//   "key_blocks": {"max_blocks": 16, "block_size": 128, "lists": "chosen"}
//   chosen     what a selection gives: ascending blocks that the token sees something of, its own among them, then -1
//   hostile    any order, -1 and other negatives between, blocks past the end
//   none       -1 everywhere
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/case/fields.h"
#include "tools/case/lengths.h"
#include "tools/case/memory.h"

namespace quire::tools {

struct KeyBlockSpec {
  std::int64_t max_blocks = 0;
  std::int64_t block_size = 0;
  std::string lists = "chosen";

  // Keys of a token's lists, of all tokens and of one KV head; in sequences whose tokens stand behind their cached keys.
  double total_keys(const Lengths& lengths) const;
};

// Absent without "key_blocks".
std::optional<KeyBlockSpec> read_key_blocks(const Fields& fields);

TensorView build_key_blocks(Memory& memory, const KeyBlockSpec& spec, const Lengths& lengths,
                            std::int64_t kv_heads, std::uint64_t seed);

}  // namespace quire::tools
