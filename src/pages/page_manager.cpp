// SPDX-License-Identifier: Apache-2.0
// The public class: a lock around every call, and what is checked before anything changes.
#include "quire/page_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "pages/manager.h"
#include "quire/error.h"

namespace quire {
namespace {

using pages::Manager;
using pages::Sequence;

[[noreturn]] void refuse(const char* op, const std::string& argument, const std::string& expected,
                         const std::string& actual) {
  throw Error(ErrorCode::invalid_value, std::string("PageManager.") + op, argument, expected,
              actual);
}

void require(bool holds, const char* op, const char* argument, const char* expected,
             std::int64_t actual) {
  if (!holds) refuse(op, argument, expected, std::to_string(actual));
}

constexpr std::int64_t kMaxPages = std::int64_t{1} << 31;

void check_group(const PageGroup& group, std::size_t index, const PageManagerOptions& options) {
  const auto name = [index](const char* field) {
    return fmt::format("groups[{}].{}", index, field);
  };
  constexpr std::int32_t kMaxPageSize = 1 << 20;
  if (group.page_size < 1 || group.page_size > kMaxPageSize) {
    refuse("PageManager", name("page_size"), "1 to 2^20 tokens", std::to_string(group.page_size));
  }
  const auto [least, most] = std::ranges::minmax(options.groups, {}, &PageGroup::page_size);
  if (least.page_size < 1 || group.page_size % least.page_size != 0 ||
      most.page_size % group.page_size != 0) {
    refuse("PageManager", name("page_size"),
           fmt::format("a multiple of the smallest ({}) that divides the largest ({})",
                       least.page_size, most.page_size),
           std::to_string(group.page_size));
  }
  if (group.rule != PageRule::full && group.reach < 1) {
    refuse("PageManager", name("reach"), "at least 1 token", std::to_string(group.reach));
  }
  if (group.pool < 0 || group.pool >= static_cast<std::int32_t>(options.pools.size())) {
    refuse("PageManager", name("pool"), fmt::format("below {} pools", options.pools.size()),
           std::to_string(group.pool));
  }
}

const PageManagerOptions& checked(const PageManagerOptions& options) {
  constexpr std::size_t kMaxGroups = 1 << 16;
  if (options.groups.empty() || options.groups.size() > kMaxGroups) {
    refuse("PageManager", "groups", "1 to 2^16 groups", std::to_string(options.groups.size()));
  }
  if (options.pools.empty()) refuse("PageManager", "pools", "at least one pool", "none");
  for (std::size_t i = 0; i < options.pools.size(); ++i) {
    const PagePoolSizes& pool = options.pools[i];
    if (pool.pages < 1 || pool.pages > kMaxPages) {
      refuse("PageManager", fmt::format("pools[{}].pages", i), "1 to 2^31",
             std::to_string(pool.pages));
    }
    if (pool.host_pages < 0 || pool.host_pages > kMaxPages) {
      refuse("PageManager", fmt::format("pools[{}].host_pages", i), "0 to 2^31",
             std::to_string(pool.host_pages));
    }
  }
  for (std::size_t i = 0; i < options.groups.size(); ++i) {
    check_group(options.groups[i], i, options);
  }
  return options;
}

void check_keys(const char* op, const SequenceKeys& keys) {
  for (const TokenKey& key : keys.tokens) {
    if (key.first < 0 || key.first >= key.end) {
      refuse(op, "keys.tokens", "0 <= first < end", fmt::format("[{}, {})", key.first, key.end));
    }
  }
}

void check_room(const char* op, const Manager& manager, const Sequence& sequence,
                std::int64_t end) {
  if (sequence.row < 0) return;
  for (std::size_t g = 0; g < manager.options().groups.size(); ++g) {
    const std::int64_t most = manager.table(g).columns * manager.options().groups[g].page_size;
    if (end > most) {
      refuse(op, "count", fmt::format("at most {} tokens: the page table's columns", most),
             std::to_string(end));
    }
  }
}

void check_advance(const char* op, const Sequence& sequence, std::int64_t count) {
  const auto known = static_cast<std::int64_t>(sequence.tokens.size());
  const std::int64_t most = std::min(known, sequence.capacity) - sequence.length;
  if (count < 0 || count > most) {
    refuse(op, "count", fmt::format("0 to {}: known tokens that have pages", most),
           std::to_string(count));
  }
}

// The second advance or step of a sequence would not see what the first was checked against.
void check_named_once(const char* op, Sequence& sequence, SequenceId id, std::uint64_t call) {
  if (sequence.last_call == call) refuse(op, "sequences", "each only once", std::to_string(id));
  sequence.last_call = call;
}

void check_not_pin(const char* op, const Sequence& sequence) {
  if (sequence.is_pin) refuse(op, "sequence", "one made by create or fork", "a pin");
}

}  // namespace

class PageManager::Impl {
 public:
  explicit Impl(const PageManagerOptions& options) : manager(options) {}

  std::mutex mutex;
  Manager manager;
};

PageManager::PageManager(const PageManagerOptions& options)
    : impl_(std::make_unique<Impl>(checked(options))) {}
PageManager::~PageManager() = default;

Admission PageManager::create(std::span<const std::int32_t> tokens, const SequenceKeys& keys,
                              int priority) {
  check_keys("create", keys);
  require(priority >= 0 && priority < kPagePriorities, "create", "priority", "0 to 7", priority);
  const std::lock_guard lock(impl_->mutex);
  return impl_->manager.create(tokens, keys, priority, /*is_pin=*/false);
}

PrefixProbe PageManager::probe(std::span<const std::int32_t> tokens,
                               const SequenceKeys& keys) const {
  check_keys("probe", keys);
  const std::lock_guard lock(impl_->mutex);
  return impl_->manager.probe(tokens, keys);
}

Admission PageManager::pin(std::span<const std::int32_t> tokens, const SequenceKeys& keys) {
  check_keys("pin", keys);
  const std::lock_guard lock(impl_->mutex);
  return impl_->manager.create(tokens, keys, kPagePriorities / 2, /*is_pin=*/true);
}

void PageManager::append(SequenceId id, std::span<const std::int32_t> tokens) {
  const std::lock_guard lock(impl_->mutex);
  Sequence& sequence = impl_->manager.find(id, "append");
  check_not_pin("append", sequence);
  impl_->manager.append(sequence, tokens);
}

bool PageManager::extend(SequenceId id, std::int64_t count) {
  const std::lock_guard lock(impl_->mutex);
  Sequence& sequence = impl_->manager.find(id, "extend");
  check_not_pin("extend", sequence);
  constexpr std::int64_t kMaxTokens = std::int64_t{1} << 31;
  require(count >= 0 && count < kMaxTokens - sequence.length, "extend", "count",
          "0 or more, and fewer than 2^31 tokens in all", count);
  check_room("extend", impl_->manager, sequence, sequence.length + count);
  return impl_->manager.extend(sequence, count);
}

void PageManager::advance(SequenceId id, std::int64_t count) {
  const std::lock_guard lock(impl_->mutex);
  Sequence& sequence = impl_->manager.find(id, "advance");
  check_advance("advance", sequence, count);
  impl_->manager.advance(sequence, count);
}

std::int64_t PageManager::step(std::span<const SequenceId> ids,
                               std::span<const std::int32_t> tokens) {
  const std::lock_guard lock(impl_->mutex);
  Manager& manager = impl_->manager;
  require(ids.size() == tokens.size(), "step", "tokens", "as many as sequences",
          static_cast<std::int64_t>(tokens.size()));
  const std::uint64_t call = manager.next_call();
  for (const SequenceId id : ids) {
    Sequence& sequence = manager.find(id, "step");
    check_not_pin("step", sequence);
    check_named_once("step", sequence, id, call);
    check_room("step", manager, sequence, sequence.length + 1);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!manager.step(manager.find(ids[i], "step"), tokens[i])) return static_cast<std::int64_t>(i);
  }
  return static_cast<std::int64_t>(ids.size());
}

void PageManager::advance_all(std::span<const SequenceId> ids) {
  const std::lock_guard lock(impl_->mutex);
  Manager& manager = impl_->manager;
  const std::uint64_t call = manager.next_call();
  for (const SequenceId id : ids) {
    Sequence& sequence = manager.find(id, "advance_all");
    check_advance("advance_all", sequence, 1);
    check_named_once("advance_all", sequence, id, call);
  }
  for (const SequenceId id : ids) manager.advance(manager.find(id, "advance_all"), 1);
}

void PageManager::trim(SequenceId id, std::int64_t length) {
  const std::lock_guard lock(impl_->mutex);
  Sequence& sequence = impl_->manager.find(id, "trim");
  check_not_pin("trim", sequence);
  const auto known = static_cast<std::int64_t>(sequence.tokens.size());
  require(length >= 0 && length <= known, "trim", "length", "0 to the number of known tokens",
          length);
  const auto& groups = impl_->manager.options().groups;
  for (std::size_t g = 0; length < sequence.length && g < groups.size(); ++g) {
    if (Manager::first_needed(groups[g], length) < sequence.groups[g].first) {
      refuse("trim", "length",
             fmt::format(
                 "a length whose keys group {} still has: pages before page {} were given back", g,
                 sequence.groups[g].first),
             std::to_string(length));
    }
  }
  impl_->manager.trim(sequence, length);
}

SequenceId PageManager::fork(SequenceId id) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->manager.fork(impl_->manager.find(id, "fork"));
}

void PageManager::free(SequenceId id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->manager.free(id);
}

std::int64_t PageManager::length(SequenceId id) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->manager.find(id, "length").length;
}

std::vector<std::int32_t> PageManager::tokens(SequenceId id) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->manager.find(id, "tokens").tokens;
}

std::vector<std::uint32_t> PageManager::pages(SequenceId id, int group) const {
  const std::lock_guard lock(impl_->mutex);
  const Sequence& sequence = impl_->manager.find(id, "pages");
  require(group >= 0 && group < static_cast<int>(sequence.groups.size()), "pages", "group",
          "the number of a group", group);
  return sequence.groups[static_cast<std::size_t>(group)].pages;
}

void PageManager::bind_tables(std::span<const PageTableView> tables, std::uint32_t* cache_lengths,
                              std::int64_t rows) {
  const std::lock_guard lock(impl_->mutex);
  const std::size_t groups = impl_->manager.options().groups.size();
  require(tables.size() == groups, "bind_tables", "tables", "one for each group",
          static_cast<std::int64_t>(tables.size()));
  require(rows > 0, "bind_tables", "rows", "at least 1", rows);
  if (cache_lengths == nullptr) refuse("bind_tables", "cache_lengths", "an array", "null");
  for (const PageTableView& table : tables) {
    if (table.data == nullptr) refuse("bind_tables", "tables", "arrays", "null");
    require(table.columns > 0 && table.row_stride >= table.columns, "bind_tables", "tables",
            "rows of at least one column that do not overlap", table.columns);
  }
  impl_->manager.bind_tables(tables, cache_lengths, rows);
}

void PageManager::place(SequenceId id, std::int64_t row) {
  const std::lock_guard lock(impl_->mutex);
  const Sequence& sequence = impl_->manager.find(id, "place");
  if (!impl_->manager.has_tables()) refuse("place", "row", "tables that were bound before", "none");
  require(row >= 0 && row < impl_->manager.rows(), "place", "row", "a row of the tables", row);
  for (std::size_t g = 0; g < sequence.groups.size(); ++g) {
    const auto pages = static_cast<std::int64_t>(sequence.groups[g].pages.size());
    require(pages <= impl_->manager.table(g).columns, "place", "sequence",
            "one whose pages fit the table's columns", pages);
  }
  impl_->manager.place(id, row);
}

void PageManager::displace(SequenceId id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->manager.displace(impl_->manager.find(id, "displace"));
}

PageCopies PageManager::take_copies(int pool) {
  const std::lock_guard lock(impl_->mutex);
  require(pool >= 0 && pool < static_cast<int>(impl_->manager.options().pools.size()),
          "take_copies", "pool", "the number of a pool", pool);
  return impl_->manager.take_copies(pool);
}

std::vector<PageEvent> PageManager::take_events() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->manager.take_events();
}

PageStatistics PageManager::statistics() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->manager.statistics();
}

void PageManager::clear_cache() {
  const std::lock_guard lock(impl_->mutex);
  impl_->manager.clear_cache();
}

}  // namespace quire
