// SPDX-License-Identifier: Apache-2.0
// A paged cache that owns its memory, with the row offsets of a ragged batch, for tests.
//
//   TestCache cache({.cache_lengths = {5, 0, 3}, .new_tokens = {2, 0, 4}});
//   reference::store({.x = x.view(),
//                     .row_offsets = cache.row_offsets(),
//                     .cache = cache.view(),
//                     .layer = 1});
//   EXPECT_EQ(cache.view().key(1).load(/*sequence=*/0, /*head=*/0, /*token=*/5, /*column=*/0), 1);
//
// Every sequence gets just the pages its keys need; the other columns of its table row hold the
// sentinel num_pages. Pages are dealt out in a shuffled order, and some belong to nobody. All
// memory starts as poison: 0xff bytes, NaN in every float type, so that what an op must not read
// shows in its output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "quire/paged_kv_cache.h"

namespace quire::test {

enum class PageOrder : std::uint8_t { ascending, descending, shuffled };

struct CacheOptions {
  std::vector<std::uint32_t> cache_lengths{0};
  std::vector<std::uint32_t> new_tokens{1};  // as many as cache_lengths
  RowFormat row_format = RowFormat::uniform(DType::f32, 8);
  std::int64_t page_size = 4;
  std::int64_t num_layers = 2;
  std::int64_t num_kv_heads = 2;
  bool is_mla = false;  // K only; set num_kv_heads = 1 too
  PageOrder page_order = PageOrder::shuffled;
  std::int64_t spare_pages = 2;    // pages that no sequence owns
  std::int64_t spare_columns = 1;  // table columns that no sequence needs
  bool heads_first = false;        // memory order [.., heads, page_size, row] (HND) instead of NHD
  // Scale planes: one broadcast scale for everything, instead of a scale for each granule.
  std::optional<double> static_scale{};
  bool own_scale_pages = false;  // scales have their own page table, in another order
  std::byte poison{0xff};
};

class TestCache {
 public:
  explicit TestCache(const CacheOptions& options);

  PagedKVCache view() const;
  TensorView row_offsets() const;  // u32 [batch + 1]
  std::int64_t num_tokens() const { return row_offsets_.back(); }

  // Fills the cached rows (token < cache_length) of a layer with random values, K and, where it
  // exists, V.
  void fill_cached(std::int64_t layer, std::uint64_t seed, double amplitude = 1.0);
  // The same for the new tokens' rows, for ops that expect them in the cache already.
  void fill_new(std::int64_t layer, std::uint64_t seed, double amplitude = 1.0);
  // Makes a table entry the sentinel.
  void unassign(std::int64_t sequence, std::int64_t column, std::uint32_t sentinel = 0xffffffffu);

  const std::vector<std::byte>& block_bytes() const { return blocks_; }
  const std::vector<std::byte>& scale_bytes() const { return scales_; }
  // Bytes of one row (page by way of the table), and its offset in block_bytes().
  std::int64_t row_offset_bytes(std::int64_t layer, bool value, std::int64_t sequence,
                                std::int64_t head, std::int64_t token) const;

 private:
  void deal_pages();
  void lay_out_scales();
  void fill(std::int64_t layer, std::uint64_t seed, double amplitude, bool cached);

  CacheOptions options_;
  std::int64_t num_pages_ = 0;
  std::int64_t max_pages_ = 0;
  // Mutable memory behind const views, as TensorView has it everywhere.
  mutable std::vector<std::byte> blocks_{};
  mutable std::vector<std::byte> scales_{};
  mutable std::vector<std::uint32_t> cache_lengths_{};
  mutable std::vector<std::uint32_t> page_table_{};
  mutable std::vector<std::uint32_t> scales_page_table_{};
  mutable std::vector<std::uint32_t> row_offsets_{};
};

}  // namespace quire::test
