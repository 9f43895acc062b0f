// SPDX-License-Identifier: Apache-2.0
#include "cpu/sparse_mla/chosen_rows.h"

#include <algorithm>

#include "cpu/attention/paged_rows.h"

namespace quire::cpu {

ChosenRows::ChosenRows(const PagedKVCache& cache, std::int64_t layer, const TensorView& indices,
                       const std::optional<TensorView>& lengths)
    : view_(cache.key(layer)), encoding_(view_), indices_(indices), lengths_(lengths) {}

std::int64_t ChosenRows::num_slots(std::int64_t token) const {
  const std::int64_t all = indices_.shape[1];
  if (!lengths_) return all;
  const std::int64_t length = lengths_->as<const std::int32_t>()[lengths_->offset({token})];
  return std::clamp<std::int64_t>(length, 0, all);
}

KeySource ChosenRows::source(const State& state) const {
  return {.locate = locate,
          .state = &state,
          .key_plan = encoding_.plan(),
          .value_plan = encoding_.plan(),
          .key_heads = {},  // there is one head
          .value_heads = {},
          .shared_rows = true};
}

void ChosenRows::locate(const void* state, std::int64_t /*head*/, std::int64_t first, int count,
                        RowAddress* keys, RowAddress* /*values*/) {
  const State& own = *static_cast<const State*>(state);
  const TensorView& indices = own.rows->indices_;
  const auto* slots = indices.as<const std::int32_t>() + indices.offset({own.token, first});
  for (int i = 0; i < count; ++i) {
    const std::int64_t key = slots[i * indices.strides[1]];
    keys[i] = {};
    if (key < 0 || key >= own.num_keys) continue;
    PagedRows::locate_keys(own.rows->view_, own.sequence, 0, key, 1, keys + i);
  }
}

}  // namespace quire::cpu
