// SPDX-License-Identifier: Apache-2.0
// The rows of one sequence in the pages, as a KeySource: pages are looked up once per chunk.
#pragma once

#include <cstdint>

#include "cpu/attention/item.h"
#include "cpu/runtime/row_encoding.h"
#include "quire/paged_kv_cache.h"

namespace quire::cpu {

// K and V of one layer; for MLA, V is the first columns of the K row.
class PagedRows {
 public:
  PagedRows(const PagedKVCache& cache, std::int64_t layer);

  // What `locate` gets.
  struct State {
    const PagedRows* rows;
    std::int64_t sequence;
  };
  KeySource source(const State& state) const;

  // Addresses [count] of the keys from `first` on, of one side.
  static void locate_keys(const KvLayerView& view, std::int64_t sequence, std::int64_t head,
                          std::int64_t first, int count, RowAddress* addresses);

  const KvLayerView& keys() const { return keys_; }

 private:
  static void locate(const void* state, std::int64_t head, std::int64_t first, int count,
                     RowAddress* keys, RowAddress* values);

  bool is_mla_;
  KvLayerView keys_;
  KvLayerView values_;
  RowEncoding key_encoding_;
  RowEncoding value_encoding_;
};

}  // namespace quire::cpu
