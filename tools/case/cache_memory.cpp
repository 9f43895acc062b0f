// SPDX-License-Identifier: Apache-2.0
// A cache spec turned into memory: pages dealt out, rows filled in logical order, everything else
// poisoned.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include "quire/element.h"
#include "tools/case/cache_spec.h"
#include "tools/case/random_stream.h"
#include "tools/case/row_address.h"
#include "tools/case/row_numbers.h"

namespace quire::tools {
namespace {

constexpr std::uint32_t kNoPage = 0xffffffffu;

std::vector<std::uint32_t> page_ids(std::int64_t count, PageOrder order, std::uint64_t seed) {
  std::vector<std::uint32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0u);
  if (order == PageOrder::reversed) std::reverse(ids.begin(), ids.end());
  if (order != PageOrder::shuffled) return ids;
  for (std::size_t i = ids.size(); i > 1; --i) {
    std::swap(ids[i - 1],
              ids[static_cast<std::size_t>(integer_at(seed, i, static_cast<std::int64_t>(i)))]);
  }
  return ids;
}

struct PageCounts {
  std::vector<std::int64_t> needed;  // [batch]
  std::int64_t num_pages = 0;
  std::int64_t max_pages = 0;
};

PageCounts count_pages(const CacheSpec& spec, const Lengths& lengths) {
  PageCounts counts{.needed = {}, .num_pages = spec.spare_pages};
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    counts.needed.push_back((lengths.keys(b) + spec.page_size - 1) / spec.page_size);
    counts.num_pages += counts.needed.back();
    counts.max_pages = std::max(counts.max_pages, counts.needed.back());
  }
  counts.num_pages = std::max<std::int64_t>(1, counts.num_pages);
  counts.max_pages = std::max<std::int64_t>(1, counts.max_pages + spec.spare_columns);
  return counts;
}

// Columns past a sequence's end hold both sentinels and, worst of all, ids of pages that belong to
// nobody.
TensorView build_page_table(Memory& memory, const CacheSpec& spec, const Lengths& lengths,
                            const PageCounts& counts, const std::vector<std::uint32_t>& ids,
                            const std::string& name) {
  const TensorView table = memory.allocate(name, DType::u32, {lengths.batch(), counts.max_pages});
  const auto no_page = static_cast<std::uint32_t>(counts.num_pages);
  const std::array<std::uint32_t, 3> padding{ids.back(), no_page, kNoPage};
  std::size_t next = 0;
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    const std::int64_t needed = counts.needed[static_cast<std::size_t>(b)];
    for (std::int64_t column = 0; column < counts.max_pages; ++column) {
      std::uint32_t entry = padding[static_cast<std::size_t>(column) % padding.size()];
      if (column < needed) entry = ids[next++];
      if (column < needed && !spec.is_assigned(b, column * spec.page_size)) {
        entry = column % 2 == 0 ? no_page : kNoPage;
      }
      table.as<std::uint32_t>()[b * counts.max_pages + column] = entry;
    }
  }
  return table;
}

// [num_pages, kv, layers, page_size, heads, row], heads before tokens in memory if `heads_first`.
TensorView allocate_pool(Memory& memory, const std::string& name, DType dtype,
                         std::array<std::int64_t, kMaxRank> shape, bool heads_first,
                         std::span<const std::byte> period) {
  if (heads_first) std::swap(shape[3], shape[4]);
  TensorView view = memory.allocate_repeating(name, dtype, shape, period);
  if (heads_first) {
    std::swap(view.shape[3], view.shape[4]);
    std::swap(view.strides[3], view.strides[4]);
  }
  return view;
}

constexpr std::byte kPoison{0xff};
constexpr std::int64_t kPeriodRows = 257;  // prime: neighbouring pages hold other rows

// Rows as fill_rows would write them, for pools that somebody else fills.
std::vector<std::byte> row_period(const RowFormat& format, std::uint64_t seed,
                                  const std::string& name) {
  std::vector<std::byte> period(static_cast<std::size_t>(kPeriodRows * format.row_bytes));
  RowNumbers numbers(format, seed, name);
  for (std::int64_t row = 0; row < kPeriodRows; ++row) {
    numbers.write_row(period.data() + row * format.row_bytes, row);
  }
  return period;
}

std::vector<std::byte> scale_period(const RowFormat& format, std::uint64_t seed,
                                    const std::string& name) {
  const RowPart& part = format.parts[0];
  const double mean = 1.0 / code_amplitude(format, part);
  std::vector<std::byte> period(
      static_cast<std::size_t>(bytes_for(part.scale_dtype, RandomStream::kPeriod)));
  RandomStream(seed, name, part.scale_dtype, scale_spread(part.scale_dtype) * mean, mean)
      .copy(period.data(), 0, RandomStream::kPeriod);
  return period;
}

// A layer's part of a page, its rows and then their scales, for pools that somebody else fills.
std::vector<std::byte> joined_period(const CacheSpec& spec, std::int64_t row_bytes,
                                     std::int64_t scale_bytes, std::uint64_t seed,
                                     const std::string& name) {
  std::vector<std::byte> part;
  const auto append = [&part](const std::vector<std::byte>& period, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      part.push_back(period[static_cast<std::size_t>(i) % period.size()]);
    }
  };
  append(row_period(spec.row_format, seed, name), row_bytes);
  append(scale_period(spec.row_format, seed, name + ".scales"), scale_bytes);
  return part;
}

TensorView build_scales(Memory& memory, const CacheSpec& spec, std::int64_t num_pages,
                        std::uint64_t seed, const std::string& name, bool rows_are_deferred) {
  const RowFormat& format = spec.row_format;
  const DType dtype = format.parts[0].scale_dtype;
  const std::int64_t kv = spec.is_mla ? 1 : 2;
  const std::array<std::int64_t, kMaxRank> shape{
      num_pages, kv, spec.layers, spec.page_size, spec.kv_heads, format.plane_slots()};
  if (spec.scale_kind != ScaleKind::fixed) {
    const std::vector<std::byte> period =
        rows_are_deferred ? scale_period(format, seed, name) : std::vector<std::byte>{kPoison};
    return allocate_pool(memory, name, dtype, shape, spec.heads_first, period);
  }
  // A calibrated scale for K and one for V, broadcast over everything else.
  TensorView view = memory.allocate(name, dtype, {kv});
  const double mean = 1.0 / code_amplitude(format, format.parts[0]);
  RandomStream(seed, name, dtype, scale_spread(dtype) * mean, mean)
      .copy(view.as<std::byte>(), 0, kv);
  view.rank = kMaxRank;
  view.shape = shape;
  view.strides = {0, 1, 0, 0, 0, 0};
  return view;
}

void fill_rows(const PagedKVCache& cache, const CacheSpec& spec, const Lengths& lengths,
               Contents contents, std::uint64_t seed, const std::string& name) {
  for (const Side side : {Side::key, Side::value}) {
    if (spec.is_mla && side == Side::value) continue;
    RowNumbers numbers(spec.row_format, seed, name + (side == Side::key ? ".key" : ".value"));
    std::int64_t index = 0;
    for (std::int64_t b = 0; b < lengths.batch(); ++b) {
      const std::int64_t cached = lengths.cached[static_cast<std::size_t>(b)];
      for (std::int64_t token = 0; token < lengths.keys(b); ++token) {
        for (std::int64_t head = 0; head < spec.kv_heads; ++head, ++index) {
          if (token >= cached && contents == Contents::cached) continue;
          numbers.write(
              cache,
              {.layer = spec.layer, .side = side, .sequence = b, .token = token, .head = head},
              index);
        }
      }
    }
  }
}

// The values of one key, all heads and columns; in MLA its row.
void spoil_value(const PagedKVCache& cache, const CacheSpec& spec, std::int64_t sequence,
                 std::int64_t token, double number) {
  for (std::int64_t head = 0; head < spec.kv_heads; ++head) {
    std::byte* row = row_address(cache, {.layer = spec.layer,
                                         .side = spec.is_mla ? Side::key : Side::value,
                                         .sequence = sequence,
                                         .token = token,
                                         .head = head});
    if (row == nullptr) continue;
    for (std::int32_t p = 0; p < spec.row_format.num_parts; ++p) {
      const RowPart& part = spec.row_format.parts[static_cast<std::size_t>(p)];
      for (std::int32_t i = 0; i < part.width; ++i) {
        store_element(row + part.offset_bytes, part.dtype, i, number);
      }
    }
  }
}

void spoil_values(const PagedKVCache& cache, const CacheSpec& spec) {
  for (const auto& [sequence, token] : spec.nan_values) {
    spoil_value(cache, spec, sequence, token, std::numeric_limits<double>::quiet_NaN());
  }
  for (const auto& [sequence, token] : spec.infinite_values) {
    spoil_value(cache, spec, sequence, token, std::numeric_limits<double>::infinity());
  }
}

// 0xff is -1 in i8 and i4, which looks like data: the most negative code does not. Rows with their scales in them have
// poison in those.
void prepare(const TensorView& pool, const CacheSpec& spec) {
  const auto bytes = static_cast<std::size_t>(bytes_for(pool.dtype, pool.numel()));
  if (!spec.poison) std::memset(pool.data, 0, bytes);
  const RowPart& part = spec.row_format.parts[0];
  if (spec.poison && !is_float(part.dtype) && part.scale_source != ScaleSource::in_row) {
    std::memset(pool.data, part.dtype == DType::i4 ? 0x88 : 0x80, bytes);
  }
  if (spec.poison && spec.poison_number == PoisonNumber::infinity) {
    for (std::int64_t i = 0; i < pool.numel(); ++i) {
      store_element(pool.data, pool.dtype, i, std::numeric_limits<double>::infinity());
    }
  }
}

// One tensor of bytes: the rows of a page and layer, then their scales, to whole eights for each token.
bool build_joined_pool(Memory& memory, const CacheSpec& spec, std::int64_t num_pages,
                       std::uint64_t seed, const std::string& name, PagedKVCache& cache) {
  const RowFormat& format = spec.row_format;
  const DType scale_dtype = format.parts[0].scale_dtype;
  const std::int64_t kv = spec.is_mla ? 1 : 2;
  const std::int64_t page_rows = spec.page_size * spec.kv_heads;
  const std::int64_t scale_bytes = (bytes_for(scale_dtype, format.plane_slots()) + 7) / 8 * 8;
  const std::int64_t row_bytes = page_rows * format.row_bytes;
  const std::int64_t part_bytes = row_bytes + page_rows * scale_bytes;
  const std::array<std::int64_t, 4> shape{num_pages, kv, spec.layers, part_bytes};
  const bool is_deferred = memory.defers(Memory::bytes_of(name + ".blocks", DType::u8, shape));
  const std::vector<std::byte> period =
      is_deferred ? joined_period(spec, row_bytes, part_bytes - row_bytes, seed, name)
                  : std::vector<std::byte>{kPoison};
  const TensorView pool = memory.allocate_repeating(name + ".blocks", DType::u8, shape, period);
  if (!spec.poison && !is_deferred)
    std::memset(pool.data, 0, static_cast<std::size_t>(pool.numel()));
  const auto part_of_pages = [&](std::int64_t first, DType dtype, std::int64_t bytes,
                                 std::int64_t elements) {
    const std::int64_t unit = bits(dtype) / 8;
    TensorView view = pool;
    view.data = pool.as<std::byte>() + first;
    view.dtype = dtype;
    view.rank = kMaxRank;
    view.shape = {num_pages, kv, spec.layers, spec.page_size, spec.kv_heads, elements};
    view.strides = {kv * spec.layers * part_bytes / unit,
                    spec.layers * part_bytes / unit,
                    part_bytes / unit,
                    spec.kv_heads * bytes / unit,
                    bytes / unit,
                    1};
    return view;
  };
  const DType row_dtype = format.is_uniform() ? format.parts[0].dtype : DType::u8;
  cache.blocks = part_of_pages(0, row_dtype, format.row_bytes, format.row_bytes);
  cache.scales = part_of_pages(row_bytes, scale_dtype, scale_bytes, format.plane_slots());
  return is_deferred;
}

// Blocks and scales, poisoned; whether somebody else fills them.
bool build_pools(Memory& memory, const CacheSpec& spec, std::int64_t num_pages, std::uint64_t seed,
                 const std::string& name, PagedKVCache& cache) {
  if (spec.scale_kind == ScaleKind::page_end) {
    return build_joined_pool(memory, spec, num_pages, seed, name, cache);
  }
  const RowFormat& format = spec.row_format;
  // Bytes where there are several parts, and where elements are less than that.
  const bool has_elements = format.is_uniform() && bits(format.parts[0].dtype) >= 8;
  const DType dtype = has_elements ? format.parts[0].dtype : DType::u8;
  const std::array<std::int64_t, kMaxRank> shape{
      num_pages,     spec.is_mla || spec.is_split ? 1 : 2,
      spec.layers,   spec.page_size,
      spec.kv_heads, has_elements ? format.width() : format.row_bytes};
  const bool is_deferred = memory.defers(Memory::bytes_of(name + ".blocks", dtype, shape));
  const std::vector<std::byte> period =
      is_deferred ? row_period(format, seed, name) : std::vector<std::byte>{kPoison};
  cache.blocks = allocate_pool(memory, name + ".blocks", dtype, shape, spec.heads_first, period);
  if (!is_deferred) prepare(cache.blocks, spec);
  if (spec.is_split) {
    cache.value_blocks =
        allocate_pool(memory, name + ".value_blocks", dtype, shape, spec.heads_first, period);
    if (!is_deferred) prepare(*cache.value_blocks, spec);
  }
  if (format.uses_plane()) {
    cache.scales = build_scales(memory, spec, num_pages, seed, name + ".scales", is_deferred);
    if (!spec.poison && spec.scale_kind != ScaleKind::fixed && !is_deferred) {
      prepare(*cache.scales, spec);
    }
  }
  return is_deferred;
}

}  // namespace

PagedKVCache build_cache(Memory& memory, const CacheSpec& spec, const Lengths& lengths,
                         Contents contents, std::uint64_t seed, const std::string& name) {
  const PageCounts counts = count_pages(spec, lengths);
  PagedKVCache cache;
  const bool is_deferred = build_pools(memory, spec, counts.num_pages, seed, name, cache);
  cache.cache_lengths = memory.allocate(name + ".cache_lengths", DType::u32, {lengths.batch()});
  count_tokens(cache, lengths);
  // Ids of pages, and of the pages of scales.
  memory.charge(name + " page ids", counts.num_pages,
                2 * static_cast<std::int64_t>(sizeof(std::uint32_t)));
  const auto ids = page_ids(counts.num_pages, spec.page_order, seed_of("pages", seed));
  cache.page_table = build_page_table(memory, spec, lengths, counts, ids, name + ".page_table");
  cache.row_format = spec.row_format;
  if (spec.scale_kind == ScaleKind::own_table) {
    const auto own = page_ids(counts.num_pages, PageOrder::shuffled, seed_of("scale_pages", seed));
    cache.scales_page_table =
        build_page_table(memory, spec, lengths, counts, own, name + ".scales_page_table");
  }
  if (!is_deferred) {
    fill_rows(cache, spec, lengths, contents, seed, name);
    spoil_values(cache, spec);
  }
  return cache;
}

void count_tokens(PagedKVCache& cache, const Lengths& tokens) {
  for (std::int64_t b = 0; b < tokens.batch(); ++b) {
    cache.cache_lengths.as<std::uint32_t>()[b] =
        static_cast<std::uint32_t>(tokens.cached[static_cast<std::size_t>(b)]);
  }
}

std::optional<TensorView> build_key_lengths(Memory& memory, const Lengths& lengths) {
  if (lengths.given_keys.empty()) return std::nullopt;
  const TensorView keys = memory.allocate("key_lengths", DType::u32, {lengths.batch()});
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    keys.as<std::uint32_t>()[b] = static_cast<std::uint32_t>(lengths.keys(b));
  }
  return keys;
}

TensorView build_row_offsets(Memory& memory, const Lengths& lengths) {
  const TensorView offsets = memory.allocate("row_offsets", DType::u32, {lengths.batch() + 1});
  std::int64_t sum = 0;
  for (std::int64_t b = 0; b <= lengths.batch(); ++b) {
    offsets.as<std::uint32_t>()[b] = static_cast<std::uint32_t>(sum);
    if (b < lengths.batch()) sum += lengths.added[static_cast<std::size_t>(b)];
  }
  return offsets;
}

}  // namespace quire::tools
