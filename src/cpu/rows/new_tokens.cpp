// SPDX-License-Identifier: Apache-2.0
#include "cpu/rows/new_tokens.h"

#include <algorithm>

namespace quire::cpu {

std::int64_t NewTokens::first_position(std::int64_t sequence) const {
  if (!rows_) return cache_lengths_[sequence];
  const std::int64_t added = std::int64_t{offsets_[sequence + 1]} - offsets_[sequence];
  return rows_->first_position(sequence, added);
}

void NewTokens::locate(std::int64_t first, std::span<TokenPlace> places) const {
  if (places.empty()) return;
  const std::uint32_t* end = offsets_ + batch_ + 1;
  std::int64_t sequence = std::upper_bound(offsets_, end, first) - offsets_ - 1;
  for (std::size_t done = 0; done < places.size();) {
    std::int64_t token = first + static_cast<std::int64_t>(done);
    while (token >= offsets_[sequence + 1]) ++sequence;  // empty sequences own none
    const auto left = static_cast<std::size_t>(offsets_[sequence + 1] - token);
    const std::span run = places.subspan(done, std::min(left, places.size() - done));
    std::int64_t position = first_position(sequence) + token - offsets_[sequence];
    for (TokenPlace& place : run) {
      place = {.token = token++,
               .sequence = sequence,
               .position = position++,
               .row = nullptr,
               .plane = nullptr};
    }
    if (rows_) find_rows(run);
    done += run.size();
  }
}

void NewTokens::find_rows(std::span<TokenPlace> places) const {
  RowAddress addresses[kMostRowsInBlock];
  while (!places.empty()) {
    const std::size_t count = std::min(places.size(), std::size_t{kMostRowsInBlock});
    rows_->locate(places[0].sequence, 0, places[0].position, static_cast<std::int64_t>(count),
                  addresses);
    for (std::size_t i = 0; i < count; ++i) {
      places[i].row = addresses[i].row;
      places[i].plane = addresses[i].plane;
    }
    places = places.subspan(count);
  }
}

}  // namespace quire::cpu
