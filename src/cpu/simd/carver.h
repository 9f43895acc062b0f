// SPDX-License-Identifier: Apache-2.0
// Scratch as aligned pieces of one block of bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/scratch.h"
#include "cpu/simd/tile.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// kept: an earlier Carver handed out the same pieces of the block, and what they hold is needed.
enum class Contents : std::uint8_t { fresh, kept };

// Hands out aligned pieces of a block; with a null block it only counts.
class Carver {
 public:
  explicit Carver(std::byte* block, Contents contents = Contents::fresh)
      : block_(block), contents_(contents) {}

  template <typename T> T* take(std::int64_t count) {
    const std::int64_t bytes =
        round_up_to(count * static_cast<std::int64_t>(sizeof(T)), kAlignment);
    std::byte* piece = block_ == nullptr ? nullptr : block_ + used_;
    if (piece != nullptr && contents_ == Contents::fresh) poison(piece, bytes);
    used_ += bytes;
    return reinterpret_cast<T*>(piece);
  }
  std::int64_t used() const { return used_; }

 private:
  static constexpr std::int64_t kAlignment = 64;

  std::byte* block_;
  Contents contents_;
  std::int64_t used_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
