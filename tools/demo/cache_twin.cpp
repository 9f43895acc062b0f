// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/cache_twin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace quire::tools::demo {
namespace {

std::span<std::byte> bytes_of(const TensorView& tensor) {
  return {tensor.as<std::byte>(),
          static_cast<std::size_t>(bytes_for(tensor.dtype, tensor.numel()))};
}

std::vector<std::byte> snapshot(const TensorView& tensor) {
  const std::span<std::byte> bytes = bytes_of(tensor);
  return {bytes.begin(), bytes.end()};
}

struct RowPlace {
  std::int64_t sequence;
  std::int64_t token;
  std::int64_t head;
};

// Every head of the tokens [first, last) of each sequence.
template <typename Visit>
void for_rows(std::span<const std::int64_t> firsts, std::span<const std::int64_t> lasts,
              std::int64_t num_heads, Visit visit) {
  for (std::size_t sequence = 0; sequence < firsts.size(); ++sequence) {
    for (std::int64_t token = firsts[sequence]; token < lasts[sequence]; ++token) {
      for (std::int64_t head = 0; head < num_heads; ++head) {
        visit(RowPlace{static_cast<std::int64_t>(sequence), token, head});
      }
    }
  }
}

// A row's own bytes; none where it has no page.
std::span<std::byte> row_bytes(const KvLayerView& view, const RowPlace& place) {
  std::byte* row = view.row(place.sequence, place.token, place.head);
  if (row == nullptr) return {};
  return {row, static_cast<std::size_t>(view.row_format.row_bytes)};
}

// The scales of a row; none without a plane of dynamic ones.
std::span<std::byte> row_scales(const KvLayerView& view, const RowPlace& place) {
  const ScaleLayerView& scales = view.scales;
  if (!scales.defined() || scales.is_static()) return {};
  const PageSlot found = view.scale_pages().find(place.sequence, place.token);
  if (!found.exists()) return {};
  return {scales.plane_in(found.page, found.slot, place.head),
          static_cast<std::size_t>(bytes_for(scales.dtype, scales.num_slots))};
}

bool are_equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// The bytes of a span of the pool as they were before.
std::span<std::byte> in_snapshot(std::vector<std::byte>& before, const TensorView& tensor,
                                 std::span<std::byte> now) {
  return std::span(before).subspan(static_cast<std::size_t>(now.data() - tensor.as<std::byte>()),
                                   now.size());
}

Fault compare_row(const KvLayerView& actual, const KvLayerView& expected, const RowPlace& place) {
  if (are_equal(row_bytes(actual, place), row_bytes(expected, place)) &&
      are_equal(row_scales(actual, place), row_scales(expected, place))) {
    return std::nullopt;
  }
  const std::string where =
      fmt::format("sequence {}, token {}, head {}", place.sequence, place.token, place.head);
  for (std::int32_t column = 0; column < actual.width(); ++column) {
    const double got = actual.load(place.sequence, place.head, place.token, column);
    const double wanted = expected.load(place.sequence, place.head, place.token, column);
    if (got == wanted || (std::isnan(got) && std::isnan(wanted))) continue;
    return fmt::format("{}, column {} is {:.9g}, the oracle says {:.9g}", where, column, got,
                       wanted);
  }
  return where + " has the oracle's values in other bytes";
}

// The values of rows, and the largest ulp of a stored number in units of the value.
struct RowValues {
  std::vector<double> values{};
  double floor = 0.0;
};

RowValues read_rows(const KvLayerView& view, std::span<const std::int64_t> firsts,
                    std::span<const std::int64_t> lasts) {
  RowValues rows;
  for_rows(firsts, lasts, view.num_heads, [&](const RowPlace& place) {
    if (row_bytes(view, place).empty()) return;
    for (std::int32_t column = 0; column < view.width(); ++column) {
      const double number = view.load_quantized(place.sequence, place.head, place.token, column);
      const double scale = view.load_scale(place.sequence, place.head, place.token, column);
      const DType dtype = view.row_format.parts[view.row_format.locate(column).part].dtype;
      rows.values.push_back(number * scale);
      rows.floor = std::max(rows.floor, ulp_of(dtype, number) * std::abs(scale));
    }
  });
  return rows;
}

const char* side_name(std::size_t side) {
  return side == 0 ? "cache key" : "cache value";
}

}  // namespace

CacheTwin::CacheTwin(const PagedKVCache& cache, std::int64_t layer, const TensorView& row_offsets,
                     TwinPages pages)
    : cache_(cache),
      layer_(layer),
      blocks_before_(snapshot(cache.blocks)),
      scales_before_(cache.scales ? snapshot(*cache.scales) : std::vector<std::byte>{}),
      cache_lengths_(Tensor::copy_of(cache.cache_lengths)) {
  const auto* offsets = row_offsets.as<const std::uint32_t>();
  for (std::int64_t b = 0; b < cache.batch(); ++b) {
    num_cached_.push_back(cache.cache_length(b));
    num_keys_.push_back(num_cached_.back() + offsets[b + 1] - offsets[b]);
  }
  lay_out(has_holes() ? TwinPages::same_size : pages);
  copy_rows();
}

std::vector<KvLayerView> CacheTwin::sides(const PagedKVCache& cache, std::int64_t layer) const {
  std::vector<KvLayerView> views{cache.key(layer)};
  if (!cache.is_mla()) views.push_back(cache.value(layer));
  return views;
}

bool CacheTwin::has_holes() const {
  const KvLayerView key = cache_.key(layer_);
  for (std::int64_t b = 0; b < cache_.batch(); ++b) {
    for (std::int64_t token = 0; token < num_keys_[static_cast<std::size_t>(b)]; ++token) {
      if (!key.is_mapped(b, token)) return true;
    }
  }
  return false;
}

void CacheTwin::lay_out(TwinPages pages) {
  const std::int64_t longest =
      num_keys_.empty() ? 0 : *std::max_element(num_keys_.begin(), num_keys_.end());
  const bool is_whole = pages == TwinPages::one_per_sequence;
  const std::int64_t page_size = is_whole ? std::max<std::int64_t>(longest, 1) : cache_.page_size();
  const std::int64_t columns = is_whole ? 1 : cache_.max_pages();
  const std::int64_t num_pages = cache_.batch() * columns;

  std::vector<std::int64_t> shape(cache_.blocks.dims().begin(), cache_.blocks.dims().end());
  shape[0] = num_pages;
  shape[2] = 1;
  shape[3] = page_size;
  blocks_ = Tensor(cache_.blocks.dtype, shape);
  if (cache_.scales) {
    shape[5] = cache_.scales->shape[5];
    scales_ = Tensor(cache_.scales->dtype, shape);
  }

  page_table_ = Tensor(DType::u32, {cache_.batch(), columns});
  const KvLayerView key = cache_.key(layer_);
  for (std::int64_t b = 0; b < cache_.batch(); ++b) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const bool is_mapped = is_whole || key.is_mapped(b, column * page_size);
      page_table_.view().as<std::uint32_t>()[b * columns + column] =
          static_cast<std::uint32_t>(is_mapped ? b * columns + column : num_pages);
    }
  }
}

void CacheTwin::copy_rows() {
  const std::vector<KvLayerView> from = sides(cache_, layer_);
  const std::vector<KvLayerView> to = sides(view(), 0);
  const std::vector<std::int64_t> starts(num_keys_.size(), 0);
  for (std::size_t side = 0; side < from.size(); ++side) {
    for_rows(starts, num_keys_, from[side].num_heads, [&](const RowPlace& place) {
      std::ranges::copy(row_bytes(from[side], place), row_bytes(to[side], place).data());
      std::ranges::copy(row_scales(from[side], place), row_scales(to[side], place).data());
    });
  }
}

PagedKVCache CacheTwin::view() const {
  PagedKVCache twin{.blocks = blocks_.view(),
                    .cache_lengths = cache_lengths_.view(),
                    .page_table = page_table_.view(),
                    .row_format = cache_.row_format};
  if (cache_.scales) twin.scales = scales_.view();
  return twin;
}

Fault CacheTwin::compare_bits() const {
  const std::vector<KvLayerView> actual = sides(cache_, layer_);
  const std::vector<KvLayerView> expected = sides(view(), 0);
  Fault fault;
  for (std::size_t side = 0; side < actual.size(); ++side) {
    for_rows(num_cached_, num_keys_, actual[side].num_heads, [&](const RowPlace& place) {
      if (fault) return;
      fault = compare_row(actual[side], expected[side], place);
      if (fault) *fault = fmt::format("{} of {}", side_name(side), *fault);
    });
  }
  return fault ? fault : compare_pool();
}

Fault CacheTwin::compare_tolerance(const CacheTwin* naive) const {
  const std::vector<KvLayerView> actual = sides(cache_, layer_);
  const std::vector<KvLayerView> exact = sides(view(), 0);
  for (std::size_t side = 0; side < actual.size(); ++side) {
    const RowValues got = read_rows(actual[side], num_cached_, num_keys_);
    const RowValues wanted = read_rows(exact[side], num_cached_, num_keys_);
    std::vector<double> rough;
    if (naive != nullptr) {
      rough = read_rows(sides(naive->view(), 0)[side], num_cached_, num_keys_).values;
    }
    const Comparison comparison =
        compare_values(side_name(side), got.values, wanted.values, {.naive = rough}, wanted.floor);
    if (!comparison.fault.empty()) return comparison.fault;
  }
  return compare_pool();
}

// The new rows have been compared: they count as they are now, all other bytes as they were.
Fault CacheTwin::compare_pool() const {
  std::vector<std::byte> blocks = blocks_before_;
  std::vector<std::byte> scales = scales_before_;
  for (const KvLayerView& side : sides(cache_, layer_)) {
    for_rows(num_cached_, num_keys_, side.num_heads, [&](const RowPlace& place) {
      const std::span<std::byte> row = row_bytes(side, place);
      if (!row.empty()) std::ranges::copy(row, in_snapshot(blocks, cache_.blocks, row).data());
      const std::span<std::byte> slots = row_scales(side, place);
      if (slots.empty()) return;
      std::ranges::copy(slots, in_snapshot(scales, *cache_.scales, slots).data());
    });
  }
  const bool is_same = are_equal(blocks, bytes_of(cache_.blocks)) &&
                       (!cache_.scales || are_equal(scales, bytes_of(*cache_.scales)));
  if (is_same) return std::nullopt;
  return "the cache was changed outside the new tokens' rows";
}

}  // namespace quire::tools::demo
