// SPDX-License-Identifier: Apache-2.0
// Which rows a CTA stores, and where they go: one side by offsets and lengths (StoreParams), or what else there is
// (StoreSides), which a kernel's other instance asks at run time.
#pragma once

#include <type_traits>

#include "cuda/any/store/params.h"
#include "cuda/common/paging/page_cursor.cuh"

namespace quire::cuda::any::store {

__device__ inline const StoreParams& side_of(const StoreParams& rows) {
  return rows;
}
__device__ inline const StoreParams& side_of(const StoreSides& rows) {
  return rows.sides[blockIdx.z];
}

// As TokenFinder, by each thread on its own.
class LoneFinder {
 public:
  __device__ LoneFinder(const std::uint32_t* row_offsets, const std::uint32_t* cache_lengths,
                        std::int64_t batch)
      : row_offsets_(row_offsets), cache_lengths_(cache_lengths), batch_(batch) {}
  __device__ TokenPlace find(std::int64_t token) const {
    return place_of_token(row_offsets_, cache_lengths_, batch_, token);
  }

 private:
  const std::uint32_t* row_offsets_;
  const std::uint32_t* cache_lengths_;
  std::int64_t batch_;
};

// Finder: TokenFinder, where all lanes of a warp find together, or LoneFinder.
template <typename Rows, typename Finder> class PlaceFinder {
 public:
  __device__ explicit PlaceFinder(const Rows& rows)
      : rows_(rows),
        side_(side_of(rows)),
        finder_(side_.row_offsets, side_.view.cache_lengths, side_.view.batch) {}

  // A slot is the position of a token of sequence 0.
  __device__ TokenPlace find(std::int64_t token) const {
    if constexpr (kMayHaveSlots) {
      if (rows_.slots.defined()) {
        if (token >= side_.tokens) return {};
        return {.sequence = 0, .position = rows_.slots.at(token)};
      }
    }
    return finder_.find(token);
  }

  // The row and the first scale of head 0; null: nowhere.
  __device__ std::byte* row(const TokenPlace& place) const {
    if constexpr (kMayHaveSlots) {
      if (rows_.slots.defined()) {
        return place.exists() ? row_at_slot(side_.view, place.position) : nullptr;
      }
    }
    return first_row(side_.view, place);
  }
  __device__ std::byte* scale(const TokenPlace& place) const {
    if constexpr (kMayHaveSlots) {
      if (rows_.slots.defined()) {
        return place.exists() ? scale_at_slot(side_.view, place.position) : nullptr;
      }
    }
    return first_scale(side_.view, place);
  }

 private:
  static constexpr bool kMayHaveSlots = std::is_same_v<Rows, StoreSides>;

  const Rows& rows_;
  const StoreParams& side_;
  Finder finder_;
};

}  // namespace quire::cuda::any::store
