// SPDX-License-Identifier: Apache-2.0
// QUIRE_CHECK=1: before an op starts on a GPU, the values there that validate() cannot see (offsets,
// lengths, page ids, positions) are brought to the host and held against the very rules for host
// tensors. It waits for the stream, so it is for debugging; a call that is being captured has no
// values yet and is not checked. Without the variable a bad page id is never followed, but it is
// not reported either.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "quire/context.h"
#include "quire/paged_kv_cache.h"

namespace quire::ops {

// The variable is read on every call: a test, or a debugger, may set it at any time.
bool is_device_check_on(Device device, const Context& context);

void check_device_batch(std::string_view op, const PagedKVCache& cache,
                        const TensorView& row_offsets, std::optional<std::int64_t> tokens,
                        const std::optional<TensorView>& key_lengths, const Context& context);
// position_ids u32 [sections, tokens] below the rows of freqs_cis.
void check_device_positions(std::string_view op, const TensorView& position_ids,
                            std::int64_t num_rows, const Context& context);
// slots [tokens] below the end of the pool.
void check_device_slots(std::string_view op, const PagedKVCache& cache, const TensorView& slots,
                        const Context& context);
void check_device_pairs(std::string_view op, const TensorView& pairs, std::int64_t num_pages,
                        const Context& context);

// Lists i32 [tokens, kv_heads, max_blocks] that name a block once.
void check_device_blocks(std::string_view op, const TensorView& key_blocks, const Context& context);

// Of a ragged batch without pages.
void check_device_offsets(std::string_view op, const TensorView& row_offsets, std::int64_t tokens,
                          const TensorView& key_offsets, std::int64_t keys, const Context& context);

// Rows that row_offsets must end at, for ops that have a tensor of them.
template <typename Args> std::optional<std::int64_t> num_tokens(const Args& args) {
  if constexpr (requires { args.x.shape; }) {
    return args.x.shape[0];
  } else if constexpr (requires { args.q.shape; }) {
    return args.q.shape[0];
  } else if constexpr (requires { args.scales.shape; }) {
    return args.scales.shape[0];
  } else if constexpr (requires { args.indices.shape; }) {
    return args.indices.shape[0];
  } else {
    return std::nullopt;
  }
}

// Keys of sequences, for ops that take them.
template <typename Args> std::optional<TensorView> given_key_lengths(const Args& args) {
  if constexpr (requires { args.key_lengths->shape; }) {
    return args.key_lengths;
  } else {
    return std::nullopt;
  }
}

// What an op's arguments hold is known by the fields' names, which are the same in all ops.
template <typename Args>
void check_device_values(std::string_view op, const Args& args, const Context& context) {
  if constexpr (requires { args.key_blocks->shape; }) {
    if (args.key_blocks && is_device_check_on(args.q.device, context)) {
      check_device_blocks(op, *args.key_blocks, context);
    }
  }
  if constexpr (requires { args.key_offsets->shape; }) {
    if (args.key_offsets) {
      if (!is_device_check_on(args.q.device, context)) return;
      return check_device_offsets(op, args.row_offsets, args.q.shape[0], *args.key_offsets,
                                  args.k->shape[0], context);
    }
  }
  if constexpr (requires { args.slots->shape; }) {
    if (args.slots) {  // which take the place of everything else
      if (!is_device_check_on(args.slots->device, context)) return;
      return check_device_slots(op, args.cache, *args.slots, context);
    }
  }
  if constexpr (requires { args.cache.page_table; }) {
    if (!is_device_check_on(args.cache.page_table.device, context)) return;
    if constexpr (requires { args.row_offsets.shape; }) {
      check_device_batch(op, args.cache, args.row_offsets, num_tokens(args),
                         given_key_lengths(args), context);
    }
    if constexpr (requires { args.position_ids->shape; }) {
      if (args.position_ids) {
        check_device_positions(op, *args.position_ids, args.freqs_cis.shape[0], context);
      }
    }
    if constexpr (requires { args.pairs.shape; }) {
      check_device_pairs(op, args.pairs, args.cache.num_pages(), context);
    }
  }
}

}  // namespace quire::ops
