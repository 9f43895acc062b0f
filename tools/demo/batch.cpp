// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/batch.h"

#include <algorithm>

namespace quire::tools::demo {
namespace {

Tensor table_tensor(const PageAllocator& pages, const std::vector<std::vector<PageId>>& rows) {
  std::size_t longest = 0;
  for (const std::vector<PageId>& row : rows) longest = std::max(longest, row.size());
  // One column more than anybody needs: it must never be read as a page.
  const auto columns = static_cast<std::int64_t>(longest) + 1;
  const std::vector<PageId> entries = pages.page_table(rows, columns);
  return Tensor::copy_of(
      Tensor::of(entries).view({static_cast<std::int64_t>(rows.size()), columns}));
}

}  // namespace

Batch::Batch(const Step& step, const PageAllocator& pages) {
  std::vector<std::uint32_t> offsets{0};
  std::vector<std::uint32_t> lengths;
  std::vector<std::vector<PageId>> all;
  std::vector<std::vector<PageId>> prefix;
  std::vector<std::vector<PageId>> suffix;
  for (const ScheduledSequence& sequence : step.sequences) {
    tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    offsets.push_back(static_cast<std::uint32_t>(tokens.size()));
    lengths.push_back(static_cast<std::uint32_t>(sequence.cache_length));
    last_rows.push_back(num_tokens() - 1);
    max_new_tokens = std::max(max_new_tokens, static_cast<std::int64_t>(sequence.tokens.size()));
    shares_prefix = shares_prefix || sequence.shared_pages > 0;

    const auto first_own = static_cast<std::ptrdiff_t>(sequence.shared_pages);
    all.push_back(sequence.pages);
    prefix.push_back(sequence.pages);
    suffix.push_back(sequence.pages);
    std::fill(prefix.back().begin() + first_own, prefix.back().end(), pages.sentinel());
    std::fill(suffix.back().begin(), suffix.back().begin() + first_own, pages.sentinel());
  }
  row_offsets = Tensor::of(offsets);
  cache_lengths = Tensor::of(lengths);
  page_table = table_tensor(pages, all);
  prefix_table = table_tensor(pages, prefix);
  suffix_table = table_tensor(pages, suffix);
}

}  // namespace quire::tools::demo
