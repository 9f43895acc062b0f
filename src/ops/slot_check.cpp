// SPDX-License-Identifier: Apache-2.0
// Tokens that the caller places by slots, and the static scales that rows meet.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cache_check.h"
#include "quire/element.h"
#include "quire/slotted_kv_operand.h"

namespace quire::ops {
namespace {

constexpr DType kSlotTypes[] = {DType::i64, DType::i32};

// Of the pages that slots name; a page that follows itself is looked at once.
void check_static_scales(const Arguments& check, const KvLayerView& view, const TensorView& slots,
                         ArgumentName name) {
  if (!view.scales.is_static()) return;
  const SlotList list = SlotList::of(slots);
  std::int64_t last = -1;
  for (std::int64_t token = 0; token < slots.shape[0]; ++token) {
    const std::int64_t page =
        SlottedKvOperand::place_of(list.at(token), view.num_pages, view.page_size).page;
    if (page < 0 || page == last) continue;
    check_scale_page(check, view, page, name);
    if (view.scales.page_stride == 0) return;  // every page reads the same numbers
    last = page;
  }
}

}  // namespace

// Their token stride, or their page stride, is 0.
void check_scale_page(const Arguments& check, const KvLayerView& view, std::int64_t page,
                      ArgumentName name) {
  const ScaleLayerView& scales = view.scales;
  const std::int64_t tokens = scales.token_stride == 0 ? 1 : view.page_size;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t head = 0; head < view.num_heads; ++head) {
      for (std::int64_t slot = 0; slot < scales.num_slots; ++slot) {
        const double value =
            load_element(scales.data, scales.dtype,
                         page * scales.page_stride + token * scales.token_stride +
                             head * scales.head_stride + slot * scales.slot_stride);
        if (std::isfinite(value) && value > 0.0) continue;
        check.fail(name, "positive and finite where scales are static",
                   fmt::format("{} on page {}, head {}, slot {}", value, page, head, slot));
      }
    }
  }
}

void check_slot_values(const Arguments& check, const PagedKVCache& cache, const TensorView& slots) {
  const SlotList list = SlotList::of(slots);
  const std::int64_t count = slots.shape[0];
  const std::int64_t end = cache.num_pages() * cache.page_size();  // below 2^63: see check_blocks()
  std::int64_t largest = -1;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, list.at(i));
  for (std::int64_t i = 0; largest >= end && i < count; ++i) {
    if (list.at(i) < end) continue;
    check.fail("slots",
               fmt::format("below {} ({} pages of {} tokens), or negative to skip a token", end,
                           cache.num_pages(), cache.page_size()),
               fmt::format("{} at [{}]", list.at(i), i));
  }
}

PagedBatch check_slots(Arguments& check, const PagedKVCache& cache, const CacheUse& use,
                       const TensorView& slots, std::int64_t tokens) {
  const CacheShape shape = check_cache(check, cache, use);
  check.tensor("slots", slots).is(kSlotTypes, {tokens}).has_dense_rows();
  if (tokens > std::numeric_limits<std::uint32_t>::max()) {
    check.fail("slots", "at most 2^32 - 1 tokens", slots.describe());
  }
  if (is_on_host(slots)) {
    check_slot_values(check, cache, slots);
    const ArgumentName name(use.name, "scales");
    if (use.layer && use.sides != CacheSides::value) {
      check_static_scales(check, cache.key(*use.layer), slots, name);
    }
    if (use.layer && use.sides != CacheSides::key && !cache.is_mla()) {
      check_static_scales(check, cache.value(*use.layer), slots, name);
    }
  }
  return {.cache = shape, .ragged = {.tokens = tokens}};
}

}  // namespace quire::ops
