// SPDX-License-Identifier: Apache-2.0
#include "ops/cache_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/memory_span.h"
#include "ops/row_format_check.h"

namespace quire::ops {
namespace {

constexpr DType kRowTypes[] = {DType::f32,      DType::f16, DType::bf16, DType::fp8_e4m3,
                               DType::fp8_e5m2, DType::i8,  DType::u8};

// Views keep these in 32 bits; ids of pages are u32, with 0xFFFFFFFF for "no page".
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxRowBytes = std::int64_t{1} << 30;  // so that sums of two fit as well
constexpr std::int64_t kMaxPages = std::numeric_limits<std::uint32_t>::max();

void check_blocks(Arguments& check, const PagedKVCache& cache, const CacheUse& use) {
  const ArgumentName name(use.name, "blocks");
  const TensorView& blocks = cache.blocks;
  const TensorArgument argument = check.tensor(name, blocks);
  argument.is(kRowTypes, {"num_pages", "kv", "num_layers", "page_size", "num_kv_heads", "row"})
      .has_dense_rows();
  if (use.access == CacheAccess::write) argument.is_written();
  if (blocks.shape[1] != 1 && blocks.shape[1] != 2) {
    check.fail(name, "[num_pages, 2 or 1 (K only), …]", blocks.describe());
  }
  for (const int dim : {3, 4, 5}) {
    if (blocks.shape[dim] < 1 || blocks.shape[dim] > kMaxInt32) {
      check.fail(name, "with page size, heads and row from 1 to 2^31 - 1", blocks.describe());
    }
  }
  if (bytes_for(blocks.dtype, blocks.shape[5]) > kMaxRowBytes) {
    check.fail(name, "with rows of at most 2^30 bytes", blocks.describe());
  }
  if (cache.num_pages() > kMaxPages) check.fail(name, "at most 2^32 - 1 pages", blocks.describe());
}

// V as a tensor of its own.
void check_value_blocks(Arguments& check, const PagedKVCache& cache, const CacheUse& use) {
  if (!cache.value_blocks.has_value()) return;
  const ArgumentName name(use.name, "value_blocks");
  const TensorView& blocks = cache.blocks;
  const TensorView& values = *cache.value_blocks;
  if (blocks.shape[1] != 1) {
    check.fail({use.name, "blocks"}, "[num_pages, 1 (K only), …] beside value_blocks",
               blocks.describe());
  }
  const TensorArgument argument = check.tensor(name, values);
  argument
      .is(blocks.dtype,
          {blocks.shape[0], 1, blocks.shape[2], blocks.shape[3], blocks.shape[4], "value row"})
      .has_dense_rows();
  const bool is_written = use.access == CacheAccess::write && use.sides != CacheSides::key;
  if (is_written) argument.is_written();
  if (values.shape[5] < 1 || bytes_for(values.dtype, values.shape[5]) > kMaxRowBytes) {
    check.fail(name, "with rows of 1 to 2^30 bytes", values.describe());
  }
  const bool has_formats = cache.row_format.has_value() || cache.scales.has_value();
  const bool takes_width = use.sides != CacheSides::all || use.takes_value_width;
  if (values.shape[5] == blocks.shape[5] || (takes_width && !has_formats)) return;
  check.fail(name,
             fmt::format("{} wide like blocks{}", blocks.shape[5],
                         has_formats ? ", as rows have scales or a row_format" : " for this op"),
             values.describe());
}

// Rows of V stand as those of K do, but for where they begin.
bool has_matching_values(const PagedKVCache& cache) {
  if (!cache.value_blocks.has_value()) return true;
  const TensorView& keys = cache.blocks;
  const TensorView& values = *cache.value_blocks;
  const auto is_same = [&](int dim) {
    return keys.shape[dim] <= 1 || keys.strides[dim] == values.strides[dim];
  };
  return keys.shape[5] == values.shape[5] && is_same(0) && is_same(3) && is_same(4);
}

void check_kind(const Arguments& check, const PagedKVCache& cache, const CacheUse& use) {
  const ArgumentName name(use.name, "blocks");
  if (use.kind == CacheKind::mla && (!cache.is_mla() || cache.num_kv_heads() != 1)) {
    check.fail(name, "an MLA cache [num_pages, 1, num_layers, page_size, 1, row]",
               cache.blocks.describe());
  }
  if (use.sides == CacheSides::value && cache.is_mla()) {
    check.fail(name, "a cache with values [num_pages, 2, …]", cache.blocks.describe());
  }
  if (use.layer.has_value()) check.is_index(use.layer_name, *use.layer, cache.num_layers());
}

void check_scales(Arguments& check, const PagedKVCache& cache, const CacheUse& use,
                  const RowFormat& format) {
  const ArgumentName name(use.name, "scales");
  if (cache.scales.has_value() != format.uses_plane()) {
    check.fail(
        name,
        (format.uses_plane() ? "given for rows of " : "absent for rows of ") + format.describe(),
        cache.scales.has_value() ? cache.scales->describe() : "none");
  }
  if (!cache.scales.has_value()) {
    if (cache.scales_page_table.has_value()) {
      check.fail({use.name, "scales_page_table"}, "absent without scales",
                 cache.scales_page_table->describe());
    }
    return;
  }
  const TensorView& scales = *cache.scales;
  if (plane_scale_dtype(format) == DType::e8m0 && !use.takes_power_scales) {
    check.fail({use.name, "row_format"}, "of f32, f16 or bf16 scales where this op quantizes rows",
               format.describe());
  }
  const bool has_own_table = cache.scales_page_table.has_value();
  const TensorArgument argument = check.tensor(name, scales);
  argument.is(plane_scale_dtype(format),
              {"num_scale_pages", cache.is_mla() ? 1 : 2, cache.num_layers(), cache.page_size(),
               cache.num_kv_heads(), format.plane_slots()});
  if (use.access == CacheAccess::write && !cache.has_static_scales()) argument.is_written();
  if (!has_own_table && scales.shape[0] < cache.num_pages()) {
    check.fail(name, fmt::format("of {} pages or more", cache.num_pages()), scales.describe());
  }
  if (has_own_table && use.rows == CacheRows::slotted) {
    check.fail({use.name, "scales_page_table"}, "absent with slots, which name pages of both",
               cache.scales_page_table->describe());
  }
  if (has_own_table) {
    check.tensor({use.name, "scales_page_table"}, *cache.scales_page_table)
        .is(DType::u32, {cache.batch(), cache.max_pages()})
        .has_dense_rows();
  }
}

// A dimension of size 1 has no stride worth the name: frameworks fill in anything.
bool has_dense_pages(const TensorView& blocks) {
  const bool heads_follow = blocks.shape[4] == 1 || blocks.strides[4] == blocks.shape[5];
  const bool tokens_follow =
      blocks.shape[3] == 1 || blocks.strides[3] == blocks.shape[4] * blocks.shape[5];
  return heads_follow && tokens_follow;
}

// Both may be left out where slots take their place; whoever needs them says what is missing.
void check_tables(Arguments& check, const PagedKVCache& cache, const CacheUse& use) {
  const ArgumentName lengths(use.name, "cache_lengths");
  const ArgumentName table(use.name, "page_table");
  const auto is_absent = [](const TensorView& view) {
    return view.rank == 0 && view.data == nullptr;
  };
  if (is_absent(cache.cache_lengths)) check.fail(lengths, "given: u32 [batch]", "none");
  if (is_absent(cache.page_table)) check.fail(table, "given: u32 [batch, max_pages]", "none");
  check.tensor(lengths, cache.cache_lengths).is(DType::u32, {"batch"}).has_dense_rows();
  check.tensor(table, cache.page_table)
      .is(DType::u32, {cache.batch(), "max_pages"})
      .has_dense_rows();
}

}  // namespace

std::int64_t cache_alignment(const PagedKVCache& cache) {
  const std::int64_t keys = row_alignment(cache.blocks);
  return cache.value_blocks ? std::min(keys, row_alignment(*cache.value_blocks)) : keys;
}

CacheShape check_cache(Arguments& check, const PagedKVCache& cache, const CacheUse& use) {
  check_blocks(check, cache, use);
  check_value_blocks(check, cache, use);
  if (use.rows == CacheRows::paged) check_tables(check, cache, use);
  const RowFormat format = check_row_format(check, cache, use.name);
  check_scales(check, cache, use, format);
  check_kind(check, cache, use);
  const bool is_value = use.sides == CacheSides::value;
  return {
      .row_format = is_value ? cache.value_format() : format,
      .num_pages = cache.num_pages(),
      .num_layers = cache.num_layers(),
      .page_size = cache.page_size(),
      .num_kv_heads = cache.num_kv_heads(),
      .max_pages = use.rows == CacheRows::paged ? cache.max_pages() : 0,
      .is_mla = cache.is_mla(),
      .has_scales = cache.scales.has_value(),
      .values_match_keys = has_matching_values(cache),
      .rows_are_dense = has_dense_pages(cache.blocks) &&
                        (!cache.value_blocks.has_value() || has_dense_pages(*cache.value_blocks))};
}

void check_unscaled(const Arguments& check, const PagedKVCache& cache, std::int64_t begin,
                    std::int64_t end) {
  const RowFormat format = cache.format();
  std::int64_t start = 0;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[p];
    const bool is_touched = start < end && begin < start + part.width;
    if (is_touched && part.scale_source != ScaleSource::none) {
      check.fail("cache",
                 fmt::format("unscaled in the columns [{}, {}) changed in place", begin, end),
                 "rows of " + format.describe());
    }
    start += part.width;
  }
}

}  // namespace quire::ops
