// SPDX-License-Identifier: Apache-2.0
#include "fuzz/problems/draw.h"

namespace quire::test {
namespace {

std::uint64_t hash_of(std::span<const std::uint8_t> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3ull;
  return hash;
}

}  // namespace

Draw::Draw(std::span<const std::uint8_t> bytes, Extent extent)
    : bytes_(bytes), engine_(hash_of(bytes)), extent_(extent) {}

std::uint64_t Draw::bits() {
  constexpr std::size_t kBytes = sizeof(std::uint64_t);
  if (bytes_.size() < kBytes) {
    bytes_ = {};
    return engine_();
  }
  std::uint64_t value = 0;
  for (const std::uint8_t byte : bytes_.first(kBytes)) value = value << 8 | byte;
  bytes_ = bytes_.subspan(kBytes);
  return value;
}

std::int64_t Draw::below(std::int64_t bound) {
  const auto size = static_cast<std::uint64_t>(bound);
  if (bytes_.empty()) return static_cast<std::int64_t>(engine_() % size);
  std::uint64_t value = 0;
  for (std::uint64_t left = size - 1; left > 0 && !bytes_.empty(); left >>= 8) {
    value = value << 8 | bytes_.front();
    bytes_ = bytes_.subspan(1);
  }
  return static_cast<std::int64_t>(value % size);
}

}  // namespace quire::test
