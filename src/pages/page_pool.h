// SPDX-License-Identifier: Apache-2.0
// Pages of one pool by what becomes of them next:
//
//   free     in a stack; taken first
//   in use   counted, by sequences; or held by copies that have not been taken yet
//   cached   used by nobody, but a node of the prefix index names it; in the list of its priority, the one that was used
//            last at the end. Taken from the front of the lowest priority's list when no page is free.
#pragma once

#include <cstdint>
#include <vector>

#include "pages/large_array.h"
#include "quire/page_manager_types.h"

namespace quire::pages {

class PagePool {
 public:
  // Whose page it is in the prefix index; node < 0: of none.
  struct Entry {
    std::int32_t node = -1;
    std::int32_t group = 0;
  };

  explicit PagePool(std::int64_t num_pages) {
    pages_.resize(static_cast<std::size_t>(num_pages + kPagePriorities));
    first_head_ = static_cast<std::uint32_t>(num_pages);
    for (std::uint32_t head = first_head_; head < pages_.size(); ++head) {
      pages_[head].previous = pages_[head].next = head;
    }
    free_.reserve(static_cast<std::size_t>(num_pages));
    // The lowest ids go first: a pool that is mostly empty stays in few pages of the machine's memory.
    for (std::int64_t page = num_pages; page-- > 0;)
      free_.push_back(static_cast<std::uint32_t>(page));
  }

  std::int64_t num_pages() const { return first_head_; }
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t num_cached() const { return num_cached_; }
  std::int64_t num_available() const { return num_free() + num_cached(); }
  std::int64_t num_used() const { return num_pages() - num_available(); }

  std::int32_t uses(std::uint32_t page) const { return pages_[page].uses; }
  bool is_cached(std::uint32_t page) const {
    const Page& at = pages_[page];
    return at.uses == 0 && at.holds == 0 && at.node >= 0;
  }
  bool is_held(std::uint32_t page) const { return pages_[page].holds > 0; }
  int priority(std::uint32_t page) const { return pages_[page].priority; }
  Entry entry(std::uint32_t page) const {
    return {.node = pages_[page].node, .group = pages_[page].group};
  }
  void set_entry(std::uint32_t page, Entry entry) {
    pages_[page].node = entry.node;
    pages_[page].group = static_cast<std::uint16_t>(entry.group);
  }

  // A free page, in use once from now on. There must be one.
  std::uint32_t take_free() {
    const std::uint32_t page = free_.back();
    free_.pop_back();
    pages_[page].uses = 1;
    return page;
  }
  // The cached page to be given up next. There must be one.
  std::uint32_t oldest() const {
    std::uint32_t head = first_head_;
    while (pages_[head].next == head) ++head;
    return pages_[head].next;
  }
  // A cached page that no node names any more.
  void make_free(std::uint32_t page) {
    unlink(page);
    pages_[page].node = -1;
    free_.push_back(page);
  }

  void retain(std::uint32_t page) {
    if (is_cached(page)) unlink(page);
    ++pages_[page].uses;
  }
  void release(std::uint32_t page, int priority) {
    --pages_[page].uses;
    pages_[page].priority = static_cast<std::uint8_t>(priority);
    make_available(page);
  }
  // By a copy that reads or writes it.
  void hold(std::uint32_t page) {
    if (is_cached(page)) unlink(page);
    ++pages_[page].holds;
  }
  void let_go(std::uint32_t page) {
    --pages_[page].holds;
    make_available(page);
  }

 private:
  struct Page {
    std::int32_t uses = 0;
    std::uint32_t holds = 0;
    std::int32_t node = -1;
    std::uint16_t group = 0;
    std::uint8_t priority = 0;   // of who used it last
    std::uint32_t previous = 0;  // of cached ones
    std::uint32_t next = 0;
  };

  // Free, or the last of its list, unless somebody has it still.
  void make_available(std::uint32_t page) {
    Page& at = pages_[page];
    if (at.uses > 0 || at.holds > 0) return;
    if (at.node < 0) {
      free_.push_back(page);
      return;
    }
    const std::uint32_t head = first_head_ + at.priority;
    at.next = head;
    at.previous = pages_[head].previous;
    pages_[at.previous].next = page;
    pages_[head].previous = page;
    ++num_cached_;
  }
  void unlink(std::uint32_t page) {
    pages_[pages_[page].previous].next = pages_[page].next;
    pages_[pages_[page].next].previous = pages_[page].previous;
    --num_cached_;
  }

  LargeArray<Page> pages_;  // and a head for each priority's list
  LargeArray<std::uint32_t> free_;
  std::uint32_t first_head_ = 0;
  std::int64_t num_cached_ = 0;
};

}  // namespace quire::pages
