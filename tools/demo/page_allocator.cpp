// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/page_allocator.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace quire::tools::demo {

PageAllocator::PageAllocator(std::int64_t num_pages, std::function<void(PageId)> on_free)
    : references_(static_cast<std::size_t>(num_pages), 0),
      was_used_(references_.size(), false),
      on_free_(std::move(on_free)) {
  for (std::int64_t page = num_pages; page-- > 0;) free_.push_back(static_cast<PageId>(page));
}

std::optional<PageId> PageAllocator::allocate() {
  if (free_.empty()) return std::nullopt;
  const PageId page = free_.back();
  free_.pop_back();
  references_[page] = 1;
  if (was_used_[page]) ++num_reuses_;
  was_used_[page] = true;
  return page;
}

void PageAllocator::share(PageId page) {
  if (references_.at(page) == 0) {
    throw std::logic_error("share: page " + std::to_string(page) + " is free");
  }
  ++references_[page];
}

void PageAllocator::release(PageId page) {
  if (references_.at(page) == 0) {
    throw std::logic_error("release: page " + std::to_string(page) + " is free");
  }
  if (--references_[page] > 0) return;
  free_.push_back(page);
  if (on_free_) on_free_(page);
}

std::vector<PageId> PageAllocator::page_table(std::span<const std::vector<PageId>> rows,
                                              std::int64_t columns) const {
  std::vector<PageId> table(rows.size() * static_cast<std::size_t>(columns), sentinel());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (static_cast<std::int64_t>(rows[row].size()) > columns) {
      throw std::logic_error("page_table: row " + std::to_string(row) + " has more than " +
                             std::to_string(columns) + " pages");
    }
    std::copy(rows[row].begin(), rows[row].end(),
              table.begin() + static_cast<std::ptrdiff_t>(row) * columns);
  }
  return table;
}

}  // namespace quire::tools::demo
