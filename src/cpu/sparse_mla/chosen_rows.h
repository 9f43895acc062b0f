// SPDX-License-Identifier: Apache-2.0
// The rows that one token's indices name, as a KeySource: slot j of the list is key j.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/attention/item.h"
#include "cpu/runtime/row_encoding.h"
#include "quire/paged_kv_cache.h"

namespace quire::cpu {

// One cache with the indices into it; the main stream and the extra one look alike.
class ChosenRows {
 public:
  ChosenRows(const PagedKVCache& cache, std::int64_t layer, const TensorView& indices,
             const std::optional<TensorView>& lengths);

  // Slots to look at: all, or as many as `lengths` says.
  std::int64_t num_slots(std::int64_t token) const;

  // What `locate` gets.
  struct State {
    const ChosenRows* rows;
    std::int64_t token;
    std::int64_t sequence;
    std::int64_t num_keys;  // of the sequence in this cache
  };
  KeySource source(const State& state) const;

 private:
  static void locate(const void* state, std::int64_t head, std::int64_t first, int count,
                     RowAddress* keys, RowAddress* values);

  KvLayerView view_;
  RowEncoding encoding_;
  const TensorView& indices_;                 // i32 [tokens, slots]
  const std::optional<TensorView>& lengths_;  // i32 [tokens]
};

}  // namespace quire::cpu
