// SPDX-License-Identifier: Apache-2.0
// Whether tensors can be read and written in vectors.
#pragma once

#include <cstdint>

namespace quire::cuda {

inline constexpr std::int64_t kVectorBytes = 16;  // of the widest load and store
inline constexpr int kVectorColumns = 8;          // of kVectorBytes of a 16-bit type

namespace detail {
inline bool is_multiple(std::int64_t bytes, std::int64_t of) {
  return bytes % of == 0;
}
inline bool is_multiple(const void* address, std::int64_t of) {
  return is_multiple(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address)), of);
}
}  // namespace detail

// Whether all of them, addresses and distances in bytes, are multiples of `to`.
template <typename... Values> bool are_aligned(std::int64_t to, const Values&... values) {
  return (detail::is_multiple(values, to) && ...);
}

}  // namespace quire::cuda
