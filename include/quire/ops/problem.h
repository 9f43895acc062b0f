// SPDX-License-Identifier: Apache-2.0
// The parts that most problems share. A problem is a plain value: sizes, dtypes and kinds, no
// pointers.
#pragma once

#include <cstdint>
#include <string>

#include "quire/device.h"
#include "quire/row_format.h"

namespace quire {

struct RaggedSize {
  std::int64_t tokens = 0;  // new tokens of all sequences
  std::int64_t batch = 0;
  // Known where lengths are on the host, otherwise the cache's bounds, otherwise -1.
  std::int64_t max_new_tokens = -1;
  std::int64_t max_keys = -1;    // longest cache_length + new tokens
  std::int64_t total_keys = -1;  // their sum

  bool operator==(const RaggedSize&) const = default;
};

struct CacheShape {
  RowFormat row_format{};
  std::int64_t num_pages = 0;
  std::int64_t num_layers = 0;
  std::int64_t page_size = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t max_pages = 0;
  bool is_mla = false;
  bool has_scales = false;
  // V's rows are as wide as K's, and as far apart.
  bool values_match_keys = true;
  bool rows_are_dense = true;  // tokens follow each other at heads · row bytes (NHD)

  bool operator==(const CacheShape&) const = default;
};

}  // namespace quire
