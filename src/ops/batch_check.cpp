// SPDX-License-Identifier: Apache-2.0
// The values of a ragged batch over a paged cache, where they are on the host.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ops/batch_scan.h"
#include "ops/cache_check.h"
#include "ops/memory_span.h"

namespace quire::ops {
namespace {

// A page table under the name of its argument.
struct PageTable {
  PageCursor pages;
  ArgumentName name;

  // Whether one of `count` ids from the sequence's first on is neither a page nor "no page".
  bool has_bad_id(std::int64_t sequence, std::int64_t count) const {
    return pages.of_sequence(sequence).gather(
        count, [&](const std::uint32_t* ids, std::int64_t columns) {
          return has_bad_page_id(ids, columns, pages.num_pages);
        });
  }
};

// The rows that a sequence has once its new tokens are stored.
std::int64_t rows_of(const PagedKVCache& cache, const CacheUse& use, const TensorView& row_offsets,
                     std::int64_t sequence) {
  return num_keys(cache, row_offsets, sequence, use.key_lengths) / use.tokens_per_row;
}

// Of a batch whose longest sequence has `max_keys`: every row of the table has the pages that its keys need.
void check_lengths(const Arguments& check, const PagedKVCache& cache, const CacheUse& use,
                   const TensorView& row_offsets, std::int64_t max_keys) {
  const std::int64_t most = saturating_product(cache.max_pages(), cache.page_size());
  if (max_keys <= most) return;
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    const std::int64_t keys = rows_of(cache, use, row_offsets, sequence);
    if (keys <= most) continue;
    if (use.key_lengths != nullptr) {
      check.fail("key_lengths",
                 fmt::format("within {} pages of {} tokens", cache.max_pages(), cache.page_size()),
                 fmt::format("{} in sequence {}", keys, sequence));
    }
    if (use.tokens_per_row > 1) {
      check.fail(
          {use.name, "cache_lengths"},
          fmt::format("within {} pages of {} rows together with the new tokens", cache.max_pages(),
                      cache.page_size()),
          fmt::format("{} rows of {} tokens in sequence {}", keys, use.tokens_per_row, sequence));
    }
    check.fail({use.name, "cache_lengths"},
               fmt::format("within {} pages of {} tokens together with the new tokens",
                           cache.max_pages(), cache.page_size()),
               fmt::format("{} + {} = {} tokens in sequence {}", cache.cache_length(sequence),
                           num_new_tokens(row_offsets, sequence), keys, sequence));
  }
}

// ceil(keys / page_size) without a division where pages are a power of two of tokens, as they nearly always are.
class PageCount {
 public:
  explicit PageCount(std::int64_t page_size)
      : page_size_(page_size),
        shift_(std::has_single_bit(static_cast<std::uint64_t>(page_size))
                   ? std::countr_zero(static_cast<std::uint64_t>(page_size))
                   : -1) {}

  std::int64_t of(std::int64_t keys) const {
    return shift_ >= 0 ? (keys + page_size_ - 1) >> shift_ : ceil_div(keys, page_size_);
  }

 private:
  std::int64_t page_size_;
  int shift_;
};

void check_page_ids(const Arguments& check, const PageTable& table, std::int64_t sequence,
                    std::int64_t columns) {
  if (!table.has_bad_id(sequence, columns)) return;
  const std::int64_t num_pages = table.pages.num_pages;
  for (std::int64_t column = 0; column < columns; ++column) {
    const std::uint32_t id = table.pages.id(sequence, column);
    if (id <= num_pages || id == kUnassignedPage) continue;
    check.fail(
        table.name,
        fmt::format("a page id below {}, or {} or 0xFFFFFFFF for no page", num_pages, num_pages),
        fmt::format("{} in sequence {}, column {}", id, sequence, column));
  }
}

// Of all sequences, the columns that their keys need. Where most of a dense table is needed it is looked at as a whole
// first: what stands in the other columns may be anything, and is only then told apart.
void check_page_table(const Arguments& check, const PageTable& table, const PagedKVCache& cache,
                      const CacheUse& use, const TensorView& row_offsets, std::int64_t total_keys) {
  const std::int64_t entries = cache.batch() * cache.max_pages();
  const bool is_dense = table.pages.row_stride == cache.max_pages();
  if (is_dense && total_keys >= entries / 4 * cache.page_size() && !table.has_bad_id(0, entries)) {
    return;
  }
  const PageCount pages(cache.page_size());
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    check_page_ids(check, table, sequence, pages.of(rows_of(cache, use, row_offsets, sequence)));
  }
}

void check_static_scales(const Arguments& check, const KvLayerView& view, const PageTable& table,
                         const TensorView& row_offsets, const PagedKVCache& cache,
                         const CacheUse& use) {
  for (std::int64_t sequence = 0; sequence < view.batch; ++sequence) {
    const std::int64_t columns =
        ceil_div(rows_of(cache, use, row_offsets, sequence), cache.page_size());
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t page = table.pages.page_at(sequence, column);
      if (page < 0) continue;
      check_scale_page(check, view, page, {use.name, "scales"});
      if (view.scales.page_stride == 0) return;  // every page reads the same numbers
    }
  }
}

void check_scale_values(const Arguments& check, const PagedKVCache& cache, const CacheUse& use,
                        const TensorView& row_offsets) {
  const bool has_own_table = cache.scales_page_table.has_value();
  const PageTable table{.pages = cache.scale_pages(), .name = {use.name, "scales_page_table"}};
  if (has_own_table) {
    const PageCount pages(cache.page_size());
    for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
      check_page_ids(check, table, sequence, pages.of(rows_of(cache, use, row_offsets, sequence)));
    }
  }
  if (!use.layer.has_value()) return;
  const auto check_side = [&](const KvLayerView& view) {
    if (!view.scales.is_static()) return;
    check_static_scales(check, view, table, row_offsets, cache, use);
  };
  if (use.sides != CacheSides::value) check_side(cache.key(*use.layer));
  if (use.sides != CacheSides::key && !cache.is_mla()) check_side(cache.value(*use.layer));
}

// The keys of key_lengths in place of those of cache lengths and new tokens.
void count_keys(const TensorView& key_lengths, BatchScan& scan) {
  const auto* lengths = key_lengths.as<const std::uint32_t>();
  scan.max_keys = scan.total_keys = 0;
  for (std::int64_t sequence = 0; sequence < key_lengths.shape[0]; ++sequence) {
    scan.max_keys = std::max<std::int64_t>(scan.max_keys, lengths[sequence]);
    scan.total_keys += lengths[sequence];
  }
}

// The rows in place of the tokens that they stand for.
void count_rows(const PagedKVCache& cache, const CacheUse& use, const TensorView& row_offsets,
                BatchScan& scan) {
  scan.max_keys = scan.total_keys = 0;
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    const std::int64_t rows = rows_of(cache, use, row_offsets, sequence);
    scan.max_keys = std::max(scan.max_keys, rows);
    scan.total_keys += rows;
  }
}

void check_bound(const Arguments& check, ArgumentName name,
                 const std::optional<std::uint32_t>& bound, std::int64_t longest) {
  if (bound.has_value() && *bound < longest) {
    check.fail(name, fmt::format("at least {}, the longest in the batch", longest),
               std::to_string(*bound));
  }
}

// Without key_lengths pages bound the positions already. Kernels keep them in 32 bits with a sign, and a mask without a
// limit shows them 2^30 - 1 keys back.
void check_positions(const Arguments& check, const CacheUse& use, std::int64_t end_position) {
  constexpr std::int64_t kPositions = (std::int64_t{1} << 30) - 1;
  if (end_position <= kPositions) return;
  check.fail({use.name, "cache_lengths"}, "positions below 2^30 - 1", std::to_string(end_position));
}

}  // namespace

std::int64_t num_new_tokens(const TensorView& row_offsets, std::int64_t sequence) {
  const auto* offsets = row_offsets.as<const std::uint32_t>();
  return std::int64_t{offsets[sequence + 1]} - offsets[sequence];
}

std::int64_t num_keys(const PagedKVCache& cache, const TensorView& row_offsets,
                      std::int64_t sequence, const TensorView* key_lengths) {
  if (key_lengths != nullptr) return key_lengths->as<const std::uint32_t>()[sequence];
  return std::int64_t{cache.cache_length(sequence)} + num_new_tokens(row_offsets, sequence);
}

void check_row_offsets(const Arguments& check, const TensorView& row_offsets,
                       std::optional<std::int64_t> tokens) {
  check_offsets(check, {"row_offsets", "tokens"}, row_offsets, tokens);
}

void check_offsets(const Arguments& check, const OffsetsName& name, const TensorView& tensor,
                   std::optional<std::int64_t> total) {
  if (!is_on_host(tensor)) return;
  const auto* offsets = tensor.as<const std::uint32_t>();
  const std::int64_t batch = tensor.shape[0] - 1;
  if (offsets[0] != 0) check.fail(name.argument, "0 at [0]", std::to_string(offsets[0]));
  unsigned num_bad = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    num_bad += static_cast<unsigned>(offsets[b + 1] < offsets[b]);
  }
  for (std::int64_t b = 0; num_bad > 0 && b < batch; ++b) {
    if (offsets[b + 1] >= offsets[b]) continue;
    check.fail(name.argument, fmt::format("monotone, at least {} at [{}]", offsets[b], b + 1),
               std::to_string(offsets[b + 1]));
  }
  if (total.has_value() && offsets[batch] != *total) {
    check.fail(name.argument,
               fmt::format("{}, the number of {}, at [{}]", *total, name.counted, batch),
               std::to_string(offsets[batch]));
  }
}

PagedBatch check_batch_values(const Arguments& check, const PagedKVCache& cache,
                              const CacheUse& use, const TensorView& row_offsets,
                              std::optional<std::int64_t> tokens) {
  const auto* offsets = row_offsets.as<const std::uint32_t>();
  BatchScan scan =
      scan_batch(offsets, cache.cache_lengths.as<const std::uint32_t>(), cache.batch());
  if (use.key_lengths != nullptr) count_keys(*use.key_lengths, scan);
  const std::int64_t end = offsets[cache.batch()];
  if (!scan.is_monotone || offsets[0] != 0 || end != tokens.value_or(end)) {
    check_row_offsets(check, row_offsets, tokens);
  }
  const std::int64_t longest = scan.max_keys;
  if (use.tokens_per_row > 1) count_rows(cache, use, row_offsets, scan);
  check_lengths(check, cache, use, row_offsets, scan.max_keys);
  check_positions(check, use, scan.end_position);
  const PageTable table{.pages = cache.pages(), .name = {use.name, "page_table"}};
  check_page_table(check, table, cache, use, row_offsets, scan.total_keys);
  if (cache.scales.has_value()) check_scale_values(check, cache, use, row_offsets);
  check_bound(check, {use.name, "max_seq_length"}, cache.max_seq_length, scan.max_new_tokens);
  check_bound(check, {use.name, "max_cache_length"}, cache.max_cache_length, longest);
  return {.ragged = {.tokens = end,
                     .batch = cache.batch(),
                     .max_new_tokens = scan.max_new_tokens,
                     .max_keys = scan.max_keys,
                     .total_keys = scan.total_keys},
          .end_position = scan.end_position};
}

PagedBatch check_batch(Arguments& check, const PagedKVCache& cache, const CacheUse& use,
                       const TensorView& row_offsets, std::optional<std::int64_t> tokens) {
  const CacheShape shape = check_cache(check, cache, use);
  check.tensor("row_offsets", row_offsets).is(DType::u32, {cache.batch() + 1}).has_dense_rows();
  if (use.key_lengths != nullptr) {
    check.tensor("key_lengths", *use.key_lengths).is(DType::u32, {cache.batch()}).has_dense_rows();
  }
  PagedBatch batch{.ragged = {.tokens = tokens.value_or(-1), .batch = cache.batch()}};
  if (is_on_host(row_offsets)) {
    batch = check_batch_values(check, cache, use, row_offsets, tokens);
  } else {
    if (cache.max_seq_length.has_value()) batch.ragged.max_new_tokens = *cache.max_seq_length;
    if (cache.max_cache_length.has_value()) {
      batch.ragged.max_keys = *cache.max_cache_length / use.tokens_per_row;
    }
  }
  batch.cache = shape;
  return batch;
}

}  // namespace quire::ops
