// SPDX-License-Identifier: Apache-2.0
// The manager's own hash of a block: two lanes of folded 64 × 64-bit products over pairs of tokens. It spreads well and is
// cheap; it does not resist somebody who looks for collisions, and need not: the index compares tokens, keys and parents.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "quire/page_manager_types.h"

namespace quire::pages {

inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline BlockHash hash_block(const BlockHash& parent, std::span<const std::int32_t> tokens,
                            std::uint64_t key) {
  constexpr std::uint64_t kOdd[] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb,
                                    0xd6e8feb86659fd93};
  // Words of two tokens, four at a time: four chains that do not wait for each other.
  std::uint64_t lanes[4] = {kOdd[0], kOdd[1], kOdd[2], kOdd[3]};
  const std::size_t words = tokens.size() / 2;
  std::size_t i = 0;
  for (; i + 4 <= words; i += 4) {
    std::uint64_t four[4];
    std::memcpy(four, tokens.data() + 2 * i, sizeof(four));
    for (std::size_t lane = 0; lane < 4; ++lane) {
      lanes[lane] = fold(lanes[lane] ^ four[lane], kOdd[3 - lane] ^ i);
    }
  }
  for (i *= 2; i < tokens.size(); ++i) {
    lanes[i % 4] = fold(lanes[i % 4] ^ static_cast<std::uint32_t>(tokens[i]), kOdd[2] ^ i);
  }
  // What stands before the block comes last: the chain from block to block is short.
  const std::uint64_t own = fold(lanes[0] ^ key, lanes[1] + kOdd[2]);
  const std::uint64_t other = fold(lanes[2] ^ tokens.size(), lanes[3] + kOdd[0] + key);
  return {.low = fold(parent.low ^ own, kOdd[1] ^ parent.high),
          .high = fold(parent.high ^ other, kOdd[3] ^ own)};
}

inline std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325 ^ text.size();
  for (const char c : text) hash = fold(hash ^ static_cast<unsigned char>(c), 0x9e3779b97f4a7c15);
  return hash;
}

}  // namespace quire::pages
