// SPDX-License-Identifier: Apache-2.0
// The manager's own hash of a block. Sixteen tokens at a time become two sums of eight 32 × 32-bit products (as in UMAC's
// NH), which compilers turn into vector instructions; the sums go into the chain by two folded 64 × 64-bit products. Those
// are what a hash made of folds alone would spend its time on: 34 ns a block of 16 on a Neoverse N1, where one keeps the
// multiplier busy for seven cycles.
//
// It spreads well and is cheap; it does not resist somebody who looks for collisions, and need not: the index compares
// tokens, keys and parents.
#pragma once

#include <array>
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

inline constexpr std::size_t kHashedTogether = 16;  // tokens
inline constexpr std::uint64_t kHashOdd[] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9};

// Numbers without a pattern (SplitMix64), two of them for each token.
inline constexpr auto kHashWords = [] {
  std::array<std::array<std::uint32_t, kHashedTogether>, 2> words{};
  std::uint64_t state = 0;
  for (auto& sum : words) {
    for (std::uint32_t& word : sum) {
      state += 0x9e3779b97f4a7c15;
      std::uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = static_cast<std::uint32_t>(z >> 32);
    }
  }
  return words;
}();

// Sixteen tokens behind `hash`. `low`, `high`: what goes into the sums beside them.
inline BlockHash hash_sixteen(const BlockHash& hash, const std::uint32_t* tokens, std::uint64_t low,
                              std::uint64_t high) {
  constexpr std::size_t kHalf = kHashedTogether / 2;
  const auto sum = [tokens](const auto& words) {
    std::uint64_t total = 0;
    // Not unrolled first: -O3 would make 16 scalar products of it, of twice the time.
#pragma GCC unroll 1
    for (std::size_t i = 0; i < kHalf; ++i) {
      total += std::uint64_t{tokens[i] + words[i]} * (tokens[i + kHalf] + words[i + kHalf]);
    }
    return total;
  };
  low += sum(kHashWords[0]);
  high += sum(kHashWords[1]);
  return {.low = fold(hash.low ^ low, kHashOdd[0] ^ hash.high),
          .high = fold(hash.high ^ high, kHashOdd[1] ^ hash.low)};
}

inline BlockHash hash_block(const BlockHash& parent, std::span<const std::int32_t> tokens,
                            std::uint64_t key) {
  // What is no token goes into the first sums.
  std::uint64_t low = key + tokens.size() * kHashOdd[0];
  std::uint64_t high = (key << 32 | key >> 32) + tokens.size() * kHashOdd[1];
  const auto* words = reinterpret_cast<const std::uint32_t*>(tokens.data());
  BlockHash hash = parent;
  std::size_t left = tokens.size();
  for (; left >= kHashedTogether; left -= kHashedTogether, words += kHashedTogether) {
    hash = hash_sixteen(hash, words, low, high);
    low = high = 0;
  }
  if (left == 0 && !tokens.empty()) return hash;
  std::uint32_t rest[kHashedTogether]{};
  if (left > 0) std::memcpy(rest, words, left * sizeof(rest[0]));
  return hash_sixteen(hash, rest, low, high);
}

inline std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325 ^ text.size();
  for (const char c : text) hash = fold(hash ^ static_cast<unsigned char>(c), 0x9e3779b97f4a7c15);
  return hash;
}

}  // namespace quire::pages
