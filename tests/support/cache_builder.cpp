// SPDX-License-Identifier: Apache-2.0
#include "support/cache_builder.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "quire/element.h"
#include "quire/paged_kv_operand.h"
#include "reference/row_codec.h"
#include "support/host_tensor.h"

namespace quire::test {
namespace {

// Rows of several parts, and those of 4-bit elements, are handed over as bytes, others as their elements.
bool has_elements(const RowFormat& format) {
  return format.is_uniform() && bits(format.parts[0].dtype) >= 8;
}

DType block_dtype(const RowFormat& format) {
  return has_elements(format) ? format.parts[0].dtype : DType::u8;
}

std::int64_t block_row(const RowFormat& format) {
  return has_elements(format) ? format.width() : format.row_bytes;
}

DType scale_dtype(const RowFormat& format) {
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[static_cast<std::size_t>(p)];
    if (part.scale_source == ScaleSource::plane) return part.scale_dtype;
  }
  return DType::f32;
}

std::vector<std::uint32_t> page_ids(std::int64_t count, PageOrder order, std::uint64_t seed) {
  std::vector<std::uint32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0u);
  if (order == PageOrder::descending) std::reverse(ids.begin(), ids.end());
  if (order != PageOrder::shuffled) return ids;
  for (std::size_t i = ids.size(); i > 1; --i) {
    const double unit = (next_uniform(seed) + 1.0) / 2.0;
    std::swap(ids[i - 1], ids[static_cast<std::size_t>(unit * static_cast<double>(i))]);
  }
  return ids;
}

// [num_pages, kv, num_layers, page_size, num_heads, row], token and head swapped in memory if
// `heads_first`.
TensorView pool_view(std::vector<std::byte>& bytes, DType dtype,
                     std::array<std::int64_t, kMaxRank> shape, bool heads_first) {
  if (heads_first) std::swap(shape[3], shape[4]);
  TensorView view = TensorView::contiguous(bytes.data(), dtype, shape);
  if (heads_first) {
    std::swap(view.shape[3], view.shape[4]);
    std::swap(view.strides[3], view.strides[4]);
  }
  return view;
}

}  // namespace

TestCache::TestCache(const CacheOptions& options)
    : options_(options), cache_lengths_(options.cache_lengths) {
  if (options.cache_lengths.size() != options.new_tokens.size()) {
    throw std::invalid_argument("TestCache: as many new_tokens as cache_lengths are needed");
  }
  row_offsets_.push_back(0);
  for (const std::uint32_t count : options.new_tokens) {
    row_offsets_.push_back(row_offsets_.back() + count);
  }
  deal_pages();
  const std::int64_t rows = num_pages_ * (options.is_mla ? 1 : 2) * options.num_layers *
                            options.page_size * options.num_kv_heads;
  blocks_.assign(static_cast<std::size_t>(rows * options.row_format.row_bytes), options.poison);
  lay_out_scales();
}

void TestCache::deal_pages() {
  const std::size_t batch = cache_lengths_.size();
  std::vector<std::int64_t> needed(batch);
  for (std::size_t b = 0; b < batch; ++b) {
    const std::int64_t keys = std::int64_t{cache_lengths_[b]} + options_.new_tokens[b];
    needed[b] = (keys + options_.page_size - 1) / options_.page_size;
    num_pages_ += needed[b];
    max_pages_ = std::max(max_pages_, needed[b]);
  }
  num_pages_ += options_.spare_pages;
  max_pages_ += options_.spare_columns;

  const std::vector<std::uint32_t> ids = page_ids(num_pages_, options_.page_order, 7);
  const std::vector<std::uint32_t> scale_ids = page_ids(num_pages_, PageOrder::shuffled, 11);
  page_table_.assign(batch * static_cast<std::size_t>(max_pages_),
                     static_cast<std::uint32_t>(num_pages_));
  scales_page_table_ = page_table_;
  std::size_t next = 0;
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::int64_t column = 0; column < needed[b]; ++column, ++next) {
      const std::size_t entry =
          b * static_cast<std::size_t>(max_pages_) + static_cast<std::size_t>(column);
      page_table_[entry] = ids[next];
      scales_page_table_[entry] = scale_ids[next];
    }
  }
}

void TestCache::lay_out_scales() {
  if (!options_.row_format.uses_plane()) return;
  const DType dtype = scale_dtype(options_.row_format);
  if (options_.static_scale.has_value()) {
    scales_.resize(static_cast<std::size_t>(bytes_for(dtype, 1)));
    store_element(scales_.data(), dtype, 0, *options_.static_scale);
    return;
  }
  const std::int64_t slots = num_pages_ * (options_.is_mla ? 1 : 2) * options_.num_layers *
                             options_.page_size * options_.num_kv_heads *
                             options_.row_format.plane_slots();
  scales_.assign(static_cast<std::size_t>(bytes_for(dtype, slots)), options_.poison);
}

PagedKVCache TestCache::view() const {
  const auto batch = static_cast<std::int64_t>(cache_lengths_.size());
  const RowFormat& format = options_.row_format;
  std::array<std::int64_t, kMaxRank> shape{
      num_pages_,         options_.is_mla ? 1 : 2, options_.num_layers,
      options_.page_size, options_.num_kv_heads,   block_row(format)};
  PagedKVCache cache{
      .blocks = pool_view(blocks_, block_dtype(format), shape, options_.heads_first),
      .cache_lengths = TensorView::contiguous(cache_lengths_.data(), DType::u32, {batch}),
      .page_table = TensorView::contiguous(page_table_.data(), DType::u32, {batch, max_pages_}),
      .row_format = format,
  };
  if (!format.uses_plane()) return cache;
  shape[5] = format.plane_slots();
  cache.scales = pool_view(scales_, scale_dtype(format), shape, options_.heads_first);
  if (options_.static_scale.has_value()) cache.scales->strides.fill(0);
  if (options_.own_scale_pages) {
    cache.scales_page_table =
        TensorView::contiguous(scales_page_table_.data(), DType::u32, {batch, max_pages_});
  }
  return cache;
}

TensorView TestCache::row_offsets() const {
  return TensorView::contiguous(row_offsets_.data(), DType::u32,
                                {static_cast<std::int64_t>(row_offsets_.size())});
}

void TestCache::fill_cached(std::int64_t layer, std::uint64_t seed, double amplitude) {
  fill(layer, seed, amplitude, true);
}

void TestCache::fill_new(std::int64_t layer, std::uint64_t seed, double amplitude) {
  fill(layer, seed, amplitude, false);
}

void TestCache::fill(std::int64_t layer, std::uint64_t seed, double amplitude, bool cached) {
  const PagedKVCache cache = view();
  std::vector<KvLayerView> sides{cache.key(layer)};
  if (!options_.is_mla) sides.push_back(cache.value(layer));
  std::vector<double> row(static_cast<std::size_t>(options_.row_format.width()));
  for (const KvLayerView& side : sides) {
    for (std::size_t b = 0; b < cache_lengths_.size(); ++b) {
      const std::int64_t first = cached ? 0 : cache_lengths_[b];
      const std::int64_t count = cached ? cache_lengths_[b] : options_.new_tokens[b];
      for (std::int64_t token = first; token < first + count; ++token) {
        for (std::int64_t head = 0; head < options_.num_kv_heads; ++head) {
          for (double& value : row) value = amplitude * next_uniform(seed);
          reference::encode_row(PagedKvOperand(side), static_cast<std::int64_t>(b), head, token,
                                row);
        }
      }
    }
  }
}

void TestCache::unassign(std::int64_t sequence, std::int64_t column, std::uint32_t sentinel) {
  const auto entry = static_cast<std::size_t>(sequence * max_pages_ + column);
  page_table_.at(entry) = sentinel;
  scales_page_table_.at(entry) = sentinel;
}

std::int64_t TestCache::row_offset_bytes(std::int64_t layer, bool value, std::int64_t sequence,
                                         std::int64_t head, std::int64_t token) const {
  const TensorView blocks = view().blocks;
  const std::int64_t page =
      page_table_.at(static_cast<std::size_t>(sequence * max_pages_ + token / options_.page_size));
  const std::int64_t element =
      blocks.offset({page, value ? 1 : 0, layer, token % options_.page_size, head, 0});
  return bytes_for(blocks.dtype, element);
}

}  // namespace quire::test
