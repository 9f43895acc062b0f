// SPDX-License-Identifier: Apache-2.0
#include "ops/flash_attention/ragged_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "quire/row_matrix.h"

namespace quire::ops {
namespace {

void check_without_cache(const Arguments& check, const FlashAttentionArgs& args) {
  if (args.cache.blocks.rank != 0) {
    check.fail("cache", "absent where k and v are given", args.cache.blocks.describe());
  }
  if (args.layer != 0) check.fail("layer", "0 without a cache", std::to_string(args.layer));
  if (args.shared_prefix_pages != 0) {
    check.fail("shared_prefix_pages", "0 without a cache",
               std::to_string(args.shared_prefix_pages));
  }
  if (args.key_lengths.has_value()) {
    check.fail("key_lengths", "absent where key_offsets are given", args.key_lengths->describe());
  }
}

void check_given(const Arguments& check, const FlashAttentionArgs& args) {
  const auto is_given = [&](const char* name, const std::optional<TensorView>& tensor) {
    if (!tensor.has_value()) check.fail(name, "given together with k, v and key_offsets", "none");
  };
  is_given("k", args.k);
  is_given("v", args.v);
  is_given("key_offsets", args.key_offsets);
}

// Views keep these in 32 bits.
void check_sizes(const Arguments& check, const char* name, const TensorView& rows) {
  constexpr std::int64_t kMost = kUnassignedRow;
  if (rows.shape[0] >= kMost || rows.shape[1] >= kMost ||
      bytes_for(rows.dtype, rows.shape[2]) >= kMost) {
    check.fail(name, "of fewer than 2^30 keys, heads and bytes of a row", rows.describe());
  }
}

// Rows of one page as plans see it: a power of two, so that few plans serve all numbers of keys.
std::int64_t planned_rows(std::int64_t total_keys) {
  constexpr std::int64_t kFewest = 128;
  return std::max(kFewest,
                  static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(total_keys))));
}

RaggedSize count_batch(const TensorView& row_offsets, const TensorView& key_offsets) {
  RaggedSize size{.tokens = 0, .batch = row_offsets.shape[0] - 1, .max_new_tokens = 0};
  size.max_keys = size.total_keys = 0;
  for (std::int64_t sequence = 0; sequence < size.batch; ++sequence) {
    const std::int64_t keys = num_new_tokens(key_offsets, sequence);
    size.max_new_tokens = std::max(size.max_new_tokens, num_new_tokens(row_offsets, sequence));
    size.max_keys = std::max(size.max_keys, keys);
    size.total_keys += keys;
  }
  return size;
}

// V's rows stand as K's do, but for where they begin.
bool have_same_rows(const TensorView& k, const TensorView& v) {
  return k.shape[2] == v.shape[2] && (k.shape[0] <= 1 || k.strides[0] == v.strides[0]) &&
         (k.shape[1] <= 1 || k.strides[1] == v.strides[1]);
}

}  // namespace

bool has_ragged_keys(const FlashAttentionArgs& args) {
  return args.k.has_value() || args.v.has_value() || args.key_offsets.has_value();
}

PagedBatch check_ragged_keys(Arguments& check, const FlashAttentionArgs& args) {
  check_given(check, args);
  check_without_cache(check, args);
  const TensorView& k = *args.k;
  const TensorView& v = *args.v;
  check.tensor("k", k)
      .is(kFloats, {"total_keys", "kv_heads", "head_dim"})
      .has_full_rows()
      .has_dense_rows();
  check.tensor("v", v)
      .is(k.dtype, {k.shape[0], k.shape[1], "value_dim"})
      .has_full_rows()
      .has_dense_rows();
  check_sizes(check, "k", k);
  check_sizes(check, "v", v);
  check.tensor("row_offsets", args.row_offsets).is(DType::u32, {"batch + 1"}).has_dense_rows();
  if (args.row_offsets.shape[0] < 1) {
    check.fail("row_offsets", "of at least one offset", args.row_offsets.describe());
  }
  check.tensor("key_offsets", *args.key_offsets)
      .is(DType::u32, {args.row_offsets.shape[0]})
      .has_dense_rows();
  PagedBatch batch{
      .cache = {.row_format = RowFormat::uniform(k.dtype, static_cast<std::int32_t>(k.shape[2])),
                .num_pages = 1,
                .num_layers = 1,
                .page_size = planned_rows(k.shape[0]),
                .num_kv_heads = k.shape[1],
                .max_pages = 1,
                .values_match_keys = have_same_rows(k, v)},
      .ragged = {.batch = args.row_offsets.shape[0] - 1}};
  if (is_on_host(args.row_offsets)) {
    check_row_offsets(check, args.row_offsets, args.q.shape[0]);
    check_offsets(check, {"key_offsets", "keys"}, *args.key_offsets, k.shape[0]);
    batch.ragged = count_batch(args.row_offsets, *args.key_offsets);
  }
  batch.ragged.tokens = args.q.shape[0];
  return batch;
}

}  // namespace quire::ops
