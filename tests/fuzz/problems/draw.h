// SPDX-License-Identifier: Apache-2.0
// Where a random problem's choices come from: a seed, or bytes that a fuzzer found worth trying. After the
// last byte a seed made of all of them goes on, so that any string of bytes is a whole problem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>

namespace quire::test {

// How large problems are. Small ones keep the oracle at some hundred microseconds and still have both sides
// of every border that a CPU kernel has now and then; those of tiles are what a GPU's kernels ask for.
enum class Extent : std::uint8_t { small, tiles };

class Draw {
 public:
  explicit Draw(std::uint64_t seed, Extent extent = Extent::small)
      : engine_(seed), extent_(extent) {}
  explicit Draw(std::span<const std::uint8_t> bytes, Extent extent = Extent::small);

  bool is_small() const { return extent_ == Extent::small; }

  std::uint64_t bits();
  // In [0, bound), from as few bytes as hold the bound.
  std::int64_t below(std::int64_t bound);
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <typename T> T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<std::int64_t>(list.size()))];
  }
  template <typename T> T pick(std::span<const T> list) {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(list.size())))];
  }
  // A pick from the list that belongs to the extent.
  template <typename T> T pick(std::initializer_list<T> small, std::initializer_list<T> tiles) {
    return is_small() ? pick(small) : pick(tiles);
  }

 private:
  std::span<const std::uint8_t> bytes_{};
  std::mt19937_64 engine_;
  Extent extent_;
};

}  // namespace quire::test
