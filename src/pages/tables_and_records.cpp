// SPDX-License-Identifier: Apache-2.0
// What a manager tells others: page tables and lengths in the caller's arrays, copies, events and counts.
#include <algorithm>
#include <utility>

#include "pages/manager.h"

namespace quire::pages {

void Manager::bind_tables(std::span<const PageTableView> tables, std::uint32_t* cache_lengths,
                          std::int64_t rows) {
  tables_.assign(tables.begin(), tables.end());
  cache_lengths_ = cache_lengths;
  rows_ = rows;
  row_owners_.assign(static_cast<std::size_t>(rows), -1);
  std::fill_n(cache_lengths_, rows, 0U);
  for (const PageTableView& table : tables_) {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::fill_n(table.data + row * table.row_stride, table.columns, kNoPage);
    }
  }
  for (Sequence& sequence : sequences_) sequence.row = -1;
}

void Manager::place(SequenceId id, std::int64_t row) {
  Sequence& sequence = find(id, "place");
  displace(sequence);
  const SequenceId owner = row_owners_[static_cast<std::size_t>(row)];
  if (owner >= 0) displace(find(owner, "place"));
  sequence.row = row;
  row_owners_[static_cast<std::size_t>(row)] = id;
  for (std::size_t g = 0; g < tables_.size(); ++g) {
    write_entries(sequence, g, 0, static_cast<std::int64_t>(sequence.groups[g].pages.size()));
  }
  write_length(sequence);
}

// Leaves an empty row.
void Manager::displace(Sequence& sequence) {
  if (sequence.row < 0) return;
  for (std::size_t g = 0; g < tables_.size(); ++g) {
    std::fill_n(tables_[g].data + sequence.row * tables_[g].row_stride,
                sequence.groups[g].pages.size(), kNoPage);
  }
  cache_lengths_[sequence.row] = 0;
  row_owners_[static_cast<std::size_t>(sequence.row)] = -1;
  sequence.row = -1;
}

void Manager::write_entries(const Sequence& sequence, std::size_t group, std::int64_t first,
                            std::int64_t end) {
  if (sequence.row < 0 || end <= first) return;
  const PageTableView& table = tables_[group];
  std::copy(sequence.groups[group].pages.begin() + first,
            sequence.groups[group].pages.begin() + end,
            table.data + sequence.row * table.row_stride + first);
}

void Manager::write_length(const Sequence& sequence) {
  if (sequence.row >= 0) {
    cache_lengths_[sequence.row] = static_cast<std::uint32_t>(sequence.length);
  }
}

// Both pages are held by the copy until it was taken. The copies of a list are one step: where the source is itself still to
// be written by one of them, it will hold what that one's source holds now.
void Manager::copy_on_device(int pool_number, std::uint32_t source, std::uint32_t target) {
  Pool& pool = pool_at(pool_number);
  if (pool.device.is_held(source)) {
    const auto found = pool.copied_from.find(source);
    if (found != pool.copied_from.end()) source = found->second;
  }
  pool.copied_from.emplace(target, source);
  pool.device.hold(source);
  pool.device.hold(target);
  pool.copies.on_device.push_back({source, target});
  ++counts_.copied_pages;
}

PageCopies Manager::take_copies(int pool_number) {
  Pool& pool = pool_at(pool_number);
  PageCopies copies = std::exchange(pool.copies, {});
  pool.copied_from.clear();
  for (const PageCopy& copy : copies.to_host) pool.host.let_go(copy.target);
  for (const PageCopy& copy : copies.from_host) {
    pool.host.let_go(copy.source);
    pool.device.let_go(copy.target);
  }
  for (const PageCopy& copy : copies.on_device) {
    pool.device.let_go(copy.source);
    pool.device.let_go(copy.target);
  }
  return copies;
}

void Manager::record(bool is_stored, PageTier tier, std::int32_t node, int group) {
  if (options_.max_events == 0) return;
  if (events_.size() >= options_.max_events) {
    ++counts_.lost_events;
    return;
  }
  PageEvent event{.is_stored = is_stored,
                  .tier = tier,
                  .group = group,
                  .hash = index_.hash(node),
                  .parent = index_.hash(index_.parent(node)),
                  .end = index_.depth(node) * block()};
  if (is_stored) {
    const auto tokens = index_.tokens(node);
    event.tokens.assign(tokens.begin(), tokens.end());
  }
  events_.push_back(std::move(event));
}

std::vector<PageEvent> Manager::take_events() {
  return std::exchange(events_, {});
}

PageStatistics Manager::statistics() const {
  PageStatistics now = counts_;
  for (const Pool& pool : pools_) {
    now.free_pages.push_back(pool.device.num_free());
    now.cached_pages.push_back(pool.device.num_cached());
    now.used_pages.push_back(pool.device.num_used());
    now.host_pages.push_back(pool.host.num_pages() - pool.host.num_free());
  }
  return now;
}

void Manager::clear_cache() {
  for (std::size_t p = 0; p < pools_.size(); ++p) {
    const auto pool = static_cast<int>(p);
    while (pools_[p].device.num_cached() > 0) {
      evict(pool, pools_[p].device.oldest(), /*may_offload=*/false);
    }
    while (pools_[p].host.num_cached() > 0) drop_host_page(pool, pools_[p].host.oldest());
  }
}

}  // namespace quire::pages
