// SPDX-License-Identifier: Apache-2.0
// Which pages are whose: a free list and a reference count per page. Memory is not its business;
// whoever owns it is told when a page becomes free.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace quire::tools::demo {

using PageId = std::uint32_t;

class PageAllocator {
 public:
  explicit PageAllocator(std::int64_t num_pages, std::function<void(PageId)> on_free = {});

  std::int64_t num_pages() const { return static_cast<std::int64_t>(references_.size()); }
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t num_in_use() const { return num_pages() - num_free(); }
  // How often a page was handed out that another owner had before.
  std::int64_t num_reuses() const { return num_reuses_; }
  std::int64_t references(PageId page) const { return references_.at(page); }

  // The page freed last, with one reference; nothing when all are taken.
  std::optional<PageId> allocate();
  // One more owner of a page in use.
  void share(PageId page);
  // One owner fewer; the last one frees the page. Throws std::logic_error for a free page.
  void release(PageId page);

  // The entry that stands for "no page" in a page table.
  PageId sentinel() const { return static_cast<PageId>(num_pages()); }
  // u32 [rows, columns], each row padded with the sentinel.
  std::vector<PageId> page_table(std::span<const std::vector<PageId>> rows,
                                 std::int64_t columns) const;

 private:
  std::vector<std::int64_t> references_;  // [num_pages], 0 = free
  std::vector<bool> was_used_;            // [num_pages]
  std::vector<PageId> free_;              // the last one goes first
  std::function<void(PageId)> on_free_;
  std::int64_t num_reuses_ = 0;
};

}  // namespace quire::tools::demo
