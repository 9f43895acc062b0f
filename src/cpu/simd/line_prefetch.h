// SPDX-License-Identifier: Apache-2.0
// Asks for memory that will be needed soon, a few cache lines at a time between other work: pieces
// too short for the hardware's prefetcher, or too far from each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

class LinePrefetch {
 public:
  LinePrefetch() = default;
  LinePrefetch(const std::byte* base, std::int64_t pieces, std::int64_t piece_stride,
               std::int64_t piece_bytes)
      : piece_(base),
        pieces_(pieces),
        piece_stride_(piece_stride),
        lines_((piece_bytes + kLine - 1) / kLine) {}

  std::int64_t lines() const { return pieces_ * lines_; }

  void advance(std::int64_t count) {
    for (; count > 0 && pieces_ > 0; --count) {
      __builtin_prefetch(piece_ + line_ * kLine, 0, 2);
      if (++line_ < lines_) continue;
      line_ = 0;
      piece_ += piece_stride_;
      --pieces_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;

  const std::byte* piece_ = nullptr;
  std::int64_t pieces_ = 0;
  std::int64_t piece_stride_ = 0;
  std::int64_t lines_ = 0;
  std::int64_t line_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
