// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/batch.h"

#include <algorithm>

namespace quire::tools::demo {
namespace {

TensorView first_rows(const Tensor& tensor, std::int64_t rows) {
  TensorView view = tensor.view();
  view.shape[0] = rows;
  return view;
}

Tensor pairs_of(const PageCopies& copies) {
  Tensor pairs(DType::u32, {static_cast<std::int64_t>(copies.on_device.size()), 2});
  auto* page = pairs.view().as<std::uint32_t>();
  for (const PageCopy& copy : copies.on_device) {
    *page++ = copy.source;
    *page++ = copy.target;
  }
  return pairs;
}

}  // namespace

BatchTables::BatchTables(PageManager& pages, std::int64_t rows, std::int64_t columns)
    : pages_(pages), page_table_(DType::u32, {rows, columns}), cache_lengths_(DType::u32, {rows}) {
  const PageTableView view{
      .data = page_table_.view().as<std::uint32_t>(), .row_stride = columns, .columns = columns};
  pages_.bind_tables({&view, 1}, cache_lengths_.view().as<std::uint32_t>(), rows);
}

void BatchTables::place(const Step& step) {
  std::int64_t row = 0;
  for (const ScheduledSequence& sequence : step.sequences) pages_.place(sequence.id, row++);
}

TensorView BatchTables::page_table(std::int64_t rows) const {
  return first_rows(page_table_, rows);
}

TensorView BatchTables::cache_lengths(std::int64_t rows) const {
  return first_rows(cache_lengths_, rows);
}

Batch::Batch(const Step& step, const BatchTables& tables) {
  const auto batch = static_cast<std::int64_t>(step.sequences.size());
  cache_lengths = tables.cache_lengths(batch);
  page_table = tables.page_table(batch);
  prefix_table = Tensor::copy_of(page_table);
  suffix_table = Tensor::copy_of(page_table);
  copies = pairs_of(step.copies);
  std::vector<std::uint32_t> offsets{0};
  for (std::int64_t row = 0; row < batch; ++row) {
    const ScheduledSequence& sequence = step.sequences[static_cast<std::size_t>(row)];
    tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    offsets.push_back(static_cast<std::uint32_t>(tokens.size()));
    last_rows.push_back(num_tokens() - 1);
    max_new_tokens = std::max(max_new_tokens, static_cast<std::int64_t>(sequence.tokens.size()));
    shares_prefix = shares_prefix || sequence.shared_pages > 0;

    const std::int64_t columns = page_table.shape[1];
    auto* prefix = prefix_table.view().as<std::uint32_t>() + row * columns;
    auto* suffix = suffix_table.view().as<std::uint32_t>() + row * columns;
    std::fill(prefix + sequence.shared_pages, prefix + columns, kNoPage);
    std::fill_n(suffix, sequence.shared_pages, kNoPage);
  }
  row_offsets = Tensor::of(offsets);
}

}  // namespace quire::tools::demo
