// SPDX-License-Identifier: Apache-2.0
// A paged cache that owns its memory, for the tests of core. Element i of the pool holds i, so a
// value says where it was read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "quire/paged_kv_cache.h"

namespace quire::testing {

struct CacheShape {
  std::int64_t pages = 4;
  std::int64_t kv = 2;
  std::int64_t layers = 1;
  std::int64_t page_size = 16;
  std::int64_t heads = 1;
  std::int64_t row = 8;  // columns
  DType dtype = DType::u32;
};

// u32 numbers that start at a 32-byte border plus `shift` numbers.
class AlignedWords {
 public:
  AlignedWords(std::int64_t count, std::uint32_t fill, std::int64_t shift = 0)
      : storage_(static_cast<std::size_t>(count + shift + 8), fill), shift_(shift), count_(count) {}

  std::uint32_t* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    return storage_.data() + (32 - address % 32) % 32 / sizeof(std::uint32_t) + shift_;
  }
  std::uint32_t& operator[](std::int64_t index) { return data()[index]; }
  std::int64_t size() const { return count_; }

 private:
  std::vector<std::uint32_t> storage_;
  std::int64_t shift_;
  std::int64_t count_;
};

class CacheStorage {
 public:
  // Page table [batch, columns], all entries `fill`, lengths 0. table_shift moves the table off its
  // alignment.
  CacheStorage(const CacheShape& shape, std::int64_t batch, std::int64_t columns,
               std::uint32_t fill = 0xFFFFFFFFu, std::int64_t table_shift = 0)
      : table(batch * columns, fill, table_shift),
        lengths(static_cast<std::size_t>(batch)),
        columns_(columns) {
    const std::int64_t count =
        shape.pages * shape.kv * shape.layers * shape.page_size * shape.heads * shape.row;
    blocks.resize(static_cast<std::size_t>(bytes_for(shape.dtype, count)));
    fill_blocks(shape.dtype);
    cache.blocks = TensorView::contiguous(
        blocks.data(), shape.dtype,
        {shape.pages, shape.kv, shape.layers, shape.page_size, shape.heads, shape.row});
    cache.page_table = TensorView::contiguous(table.data(), DType::u32, {batch, columns});
    cache.cache_lengths = TensorView::contiguous(lengths.data(), DType::u32, {batch});
  }
  CacheStorage(const CacheStorage&) = delete;  // the views point into this object

  // Scales [pages, kv, layers, page_size, heads, slots] f32; element i holds i.
  void add_scales(std::int64_t slots, std::int64_t pages) {
    std::array<std::int64_t, 6> shape = cache.blocks.shape;
    shape[0] = pages;
    shape[5] = slots;
    TensorView view = TensorView::contiguous(nullptr, DType::f32, shape);
    scales.resize(static_cast<std::size_t>(view.numel()));
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i);
    view.data = scales.data();
    cache.scales = view;
  }
  void add_scales_table(std::vector<std::uint32_t> entries) {
    scales_table = std::move(entries);
    cache.scales_page_table = TensorView::contiguous(scales_table.data(), DType::u32,
                                                     {cache.page_table.shape[0], columns_});
  }
  std::uint32_t& entry(std::int64_t sequence, std::int64_t column) {
    return table[sequence * columns_ + column];
  }
  void set_identity_table(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) table[i] = static_cast<std::uint32_t>(i);
  }
  std::span<const std::byte> bytes() const { return blocks; }

  std::vector<std::byte> blocks;
  AlignedWords table;
  std::vector<std::uint32_t> lengths;
  std::vector<float> scales;
  std::vector<std::uint32_t> scales_table;
  PagedKVCache cache;

 private:
  void fill_blocks(DType dtype) {
    if (bits(dtype) != 32) {  // narrower rows: bytes that do not repeat with any power of two
      for (std::size_t i = 0; i < blocks.size(); ++i)
        blocks[i] = static_cast<std::byte>(i % 251 + 1);
      return;
    }
    for (std::uint32_t i = 0; i < blocks.size() / 4; ++i) std::memcpy(&blocks[i * 4], &i, 4);
  }

  std::int64_t columns_;
};

inline std::uint32_t word_at(const std::byte* address) {
  std::uint32_t value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

}  // namespace quire::testing
