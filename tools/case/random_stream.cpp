// SPDX-License-Identifier: Apache-2.0
#include "tools/case/random_stream.h"

#include <algorithm>
#include <cstring>

#include "quire/element.h"

namespace quire::tools {

std::uint64_t seed_of(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325ull ^ seed;  // FNV-1a
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ull;
  }
  return hash;
}

std::uint64_t hash_of(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

double normal_at(std::uint64_t seed, std::uint64_t index) {
  // The sum of four uniforms: variance 4/12 before scaling.
  const std::uint64_t bits = hash_of(seed, index);
  double sum = 0.0;
  for (int part = 0; part < 4; ++part) {
    sum += (static_cast<double>((bits >> (16 * part)) & 0xffff) + 0.5) / 65536.0 - 0.5;
  }
  return sum * 1.7320508075688772;
}

std::int64_t integer_at(std::uint64_t seed, std::uint64_t index, std::int64_t bound) {
  return static_cast<std::int64_t>(hash_of(seed, index) % static_cast<std::uint64_t>(bound));
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view tensor, DType dtype,
                           double amplitude, double mean)
    : seed_(seed_of(tensor, seed)), dtype_(dtype), amplitude_(amplitude), mean_(mean) {}

void RandomStream::encode_up_to(std::int64_t count) {
  count = std::min(count, period());
  if (count <= encoded_) return;
  bytes_.resize(static_cast<std::size_t>(bytes_for(dtype_, count)));
  for (; encoded_ < count; ++encoded_) {
    const double value =
        mean_ + amplitude_ * normal_at(seed_, static_cast<std::uint64_t>(encoded_));
    store_element(bytes_.data(), dtype_, encoded_, value);
  }
}

void RandomStream::copy(std::byte* destination, std::int64_t first, std::int64_t count) {
  encode_up_to(first + count);
  while (count > 0) {
    const std::int64_t start = first % period();
    const std::int64_t run = std::min(count, period() - start);
    const auto run_bytes = static_cast<std::size_t>(bytes_for(dtype_, run));
    std::memcpy(destination, bytes_.data() + bytes_for(dtype_, start), run_bytes);
    destination += run_bytes;
    first += run;
    count -= run;
  }
}

}  // namespace quire::tools
