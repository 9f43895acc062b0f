// SPDX-License-Identifier: Apache-2.0
#include "pages/manager.h"

#include <algorithm>
#include <utility>

#include "quire/error.h"

namespace quire::pages {
namespace {
std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Manager::Manager(const PageManagerOptions& options)
    : options_(options),
      index_(std::ranges::min(options.groups, {}, &PageGroup::page_size).page_size,
             static_cast<int>(options.groups.size())) {
  for (const PageGroup& group : options_.groups) {
    largest_page_ = std::max<std::int64_t>(largest_page_, group.page_size);
    blocks_in_page_.push_back(group.page_size / block());
    same_page_size_ &= group.page_size == options_.groups.front().page_size;
  }
  for (const PagePoolSizes& sizes : options_.pools) {
    pools_.push_back({.device = PagePool(sizes.pages), .host = PagePool(sizes.host_pages)});
    has_host_ |= sizes.host_pages > 0;
  }
  wanted_.resize(pools_.size());
}

std::int64_t Manager::first_needed(const PageGroup& group, std::int64_t length) {
  switch (group.rule) {
    case PageRule::full:
      return 0;
    case PageRule::sliding_window:  // of the token at `length`: keys from length - reach + 1 on
      return std::max<std::int64_t>(length - group.reach + 1, 0) / group.page_size;
    case PageRule::chunk:
      return length / group.reach * group.reach / group.page_size;
  }
  return 0;
}

// Sequences. An id is the place in sequences_, and how often that was used before.

SequenceId Manager::make_sequence() {
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::uint32_t>(sequences_.size()));
    sequences_.emplace_back();
  }
  Sequence& sequence = sequences_[unused_.back()];
  unused_.pop_back();
  sequence.groups.resize(options_.groups.size());
  sequence.is_live = true;
  ++counts_.sequences;
  return id_of(sequence);
}

SequenceId Manager::id_of(const Sequence& sequence) const {
  return std::int64_t{sequence.generation} << 32 | (&sequence - sequences_.data());
}

const Sequence& Manager::find(SequenceId id, const char* op) const {
  const auto place = static_cast<std::size_t>(id & 0xffffffff);
  if (id < 0 || place >= sequences_.size() || !sequences_[place].is_live ||
      sequences_[place].generation != static_cast<std::uint32_t>(id >> 32)) {
    throw Error(ErrorCode::invalid_value, std::string("PageManager.") + op, "sequence",
                "the id of a live sequence", std::to_string(id));
  }
  return sequences_[place];
}

Sequence& Manager::find(SequenceId id, const char* op) {
  return const_cast<Sequence&>(std::as_const(*this).find(id, op));
}

// Pages.

// There must be an available one.
std::uint32_t Manager::take_page(int pool) {
  PagePool& device = pool_at(pool).device;
  if (device.num_free() == 0) evict(pool, device.oldest(), /*may_offload=*/true);
  return device.take_free();
}

// kNoPage: every page of the host is part of a copy.
std::uint32_t Manager::take_host_page(int pool) {
  PagePool& host = pool_at(pool).host;
  if (host.num_available() == 0) return kNoPage;
  if (host.num_free() == 0) drop_host_page(pool, host.oldest());
  return host.take_free();
}

void Manager::drop_host_page(int pool, std::uint32_t page) {
  PagePool& host = pool_at(pool).host;
  const PagePool::Entry entry = host.entry(page);
  record(/*is_stored=*/false, PageTier::host, entry.node, entry.group);
  index_.set_page(entry.node, entry.group, PageTier::host, kNoPage);
  host.make_free(page);
  index_.prune(entry.node);
}

// A cached page becomes a free one. Its contents go to the host, if they have a place there.
void Manager::evict(int pool_number, std::uint32_t page, bool may_offload) {
  Pool& pool = pool_at(pool_number);
  const PagePool::Entry entry = pool.device.entry(page);
  // Held meanwhile: dropping a page of the host may take the last other thing that holds the node.
  index_.retain(entry.node);
  if (may_offload && pool.host.num_pages() > 0 &&
      index_.page(entry.node, entry.group, PageTier::host) == kNoPage) {
    const std::uint32_t target = take_host_page(pool_number);
    if (target != kNoPage) {
      pool.host.set_entry(target, entry);
      pool.host.hold(target);  // by the copy alone
      pool.host.release(target, pool.device.priority(page));
      index_.set_page(entry.node, entry.group, PageTier::host, target);
      pool.copies.to_host.push_back({page, target});
      record(/*is_stored=*/true, PageTier::host, entry.node, entry.group);
      ++counts_.offloaded_pages;
    }
  }
  record(/*is_stored=*/false, PageTier::device, entry.node, entry.group);
  index_.set_page(entry.node, entry.group, PageTier::device, kNoPage);
  pool.device.make_free(page);
  ++counts_.evicted_pages;
  index_.release(entry.node);
}

// Nobody else sees it, and the index does not name it.
bool Manager::is_writable(int pool, std::uint32_t page) const {
  const PagePool& device = pool_at(pool).device;
  return device.uses(page) == 1 && device.entry(page).node < 0;
}

// Where it is not writable: the index names it, but only one sequence uses it. After trim.
bool Manager::may_unpublish(int pool, std::uint32_t page) const {
  return pool_at(pool).device.uses(page) == 1;
}

void Manager::unpublish(int pool, std::uint32_t page) {
  PagePool& device = pool_at(pool).device;
  const PagePool::Entry entry = device.entry(page);
  record(/*is_stored=*/false, PageTier::device, entry.node, entry.group);
  device.set_entry(page, {});
  index_.set_page(entry.node, entry.group, PageTier::device, kNoPage);
  index_.prune(entry.node);
}

// Operations.

void Manager::append(Sequence& sequence, std::span<const std::int32_t> tokens) {
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
}

// Of a group, so that tokens [length, end) can be written.
std::int64_t Manager::pages_wanted(const Sequence& sequence, std::size_t group,
                                   std::int64_t end) const {
  const PageGroup& rule = options_.groups[group];
  const GroupPages& own = sequence.groups[group];
  const auto have = static_cast<std::int64_t>(own.pages.size());
  std::int64_t wanted = std::max<std::int64_t>(ceil_div(end, rule.page_size) - have, 0);
  const std::int64_t written = sequence.length / rule.page_size;
  if (written < have && end > sequence.length) {
    const std::uint32_t page = own.pages[static_cast<std::size_t>(written)];
    if (!is_writable(rule.pool, page) && !may_unpublish(rule.pool, page)) ++wanted;
  }
  return wanted;
}

// The page that holds position `length`, if the sequence has it already.
void Manager::make_writable(Sequence& sequence, std::size_t group) {
  const PageGroup& rule = options_.groups[group];
  GroupPages& own = sequence.groups[group];
  const auto written = static_cast<std::size_t>(sequence.length / rule.page_size);
  if (written >= own.pages.size()) return;
  const std::uint32_t page = own.pages[written];
  if (is_writable(rule.pool, page)) return;
  if (may_unpublish(rule.pool, page)) {
    unpublish(rule.pool, page);
    return;
  }
  own.pages[written] = take_page(rule.pool);
  // A page that nothing was written to yet has nothing to copy.
  if (sequence.length % rule.page_size != 0) {
    copy_on_device(rule.pool, page, own.pages[written]);
  }
  pool_at(rule.pool).device.release(page, sequence.priority);
  write_entries(sequence, group, static_cast<std::int64_t>(written),
                static_cast<std::int64_t>(written) + 1);
}

bool Manager::extend(Sequence& sequence, std::int64_t count) {
  const std::int64_t end = sequence.length + count;
  std::ranges::fill(wanted_, 0);
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    wanted_[static_cast<std::size_t>(options_.groups[g].pool)] += pages_wanted(sequence, g, end);
  }
  for (std::size_t p = 0; p < pools_.size(); ++p) {
    if (wanted_[p] > pools_[p].device.num_available()) return false;
  }
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const PageGroup& rule = options_.groups[g];
    std::vector<std::uint32_t>& pages = sequence.groups[g].pages;
    if (count > 0) make_writable(sequence, g);
    const auto first = static_cast<std::int64_t>(pages.size());
    const std::int64_t needed = ceil_div(end, rule.page_size);
    while (static_cast<std::int64_t>(pages.size()) < needed) pages.push_back(take_page(rule.pool));
    write_entries(sequence, g, first, static_cast<std::int64_t>(pages.size()));
  }
  update_capacity(sequence);
  return true;
}

void Manager::update_capacity(Sequence& sequence) const {
  std::int64_t capacity = -1;
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const auto pages = static_cast<std::int64_t>(sequence.groups[g].pages.size());
    const std::int64_t tokens = pages * options_.groups[g].page_size;
    capacity = capacity < 0 ? tokens : std::min(capacity, tokens);
  }
  sequence.capacity = capacity;
}

void Manager::advance(Sequence& sequence, std::int64_t count) {
  sequence.length += count;
  if (options_.caches_prefixes) publish_blocks(sequence);
  release_unneeded(sequence);
  write_length(sequence);
}

bool Manager::step(Sequence& sequence, std::int32_t token) {
  sequence.tokens.push_back(token);
  bool has_page = sequence.length < sequence.capacity;
  for (std::size_t g = 0; g < options_.groups.size() && has_page; ++g) {
    const PageGroup& rule = options_.groups[g];
    const auto page = static_cast<std::size_t>(sequence.length / rule.page_size);
    has_page = is_writable(rule.pool, sequence.groups[g].pages[page]);
  }
  if (has_page || extend(sequence, 1)) return true;
  sequence.tokens.pop_back();
  return false;
}

void Manager::set_node(Sequence& sequence, std::int32_t node) {
  index_.retain(node);
  index_.release(std::exchange(sequence.node, node));
}

// Blocks that are full now, and the pages that end with them.
void Manager::publish_blocks(Sequence& sequence) {
  std::string text;
  for (std::int64_t first = index_.depth(sequence.node) * block();
       first + block() <= sequence.length; first += block()) {
    const auto tokens =
        std::span(sequence.tokens)
            .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(block()));
    std::int32_t key = sequence.keys.empty() ? 0 : block_key(sequence.keys, first, text);
    PrefixIndex::Place place{.hash = hash_of(index_.hash(sequence.node), tokens, text),
                             .parent = sequence.node,
                             .tokens = tokens,
                             .key = key};
    std::int32_t node = key < 0 ? PrefixIndex::kNone : index_.find(place);
    if (node < 0) {
      place.key = index_.keys().retain(text);
      node = index_.insert(place);
    }
    set_node(sequence, node);
    publish_pages(sequence, node);
  }
}

// Where the index has a page of the same tokens already, the sequence's own stays its own: tables of running kernels do not
// change under them.
void Manager::publish_pages(const Sequence& sequence, std::int32_t node) {
  const std::int64_t end = index_.depth(node) * block();
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const PageGroup& rule = options_.groups[g];
    if (end % rule.page_size != 0) continue;
    const std::uint32_t page =
        sequence.groups[g].pages[static_cast<std::size_t>(end / rule.page_size - 1)];
    PagePool& device = pool_at(rule.pool).device;
    const auto group = static_cast<int>(g);
    if (page == kNoPage || device.entry(page).node >= 0 ||
        index_.page(node, group, PageTier::device) != kNoPage) {
      continue;
    }
    device.set_entry(page, {.node = node, .group = group});
    index_.set_page(node, group, PageTier::device, page);
    record(/*is_stored=*/true, PageTier::device, node, group);
  }
}

void Manager::release_unneeded(Sequence& sequence) {
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const PageGroup& rule = options_.groups[g];
    if (rule.rule == PageRule::full) continue;
    GroupPages& own = sequence.groups[g];
    const std::int64_t first = own.first;
    const std::int64_t end =
        std::min(first_needed(rule, sequence.length), static_cast<std::int64_t>(own.pages.size()));
    for (; own.first < end; ++own.first) {
      const std::uint32_t page =
          std::exchange(own.pages[static_cast<std::size_t>(own.first)], kNoPage);
      pool_at(rule.pool).device.release(page, sequence.priority);
    }
    write_entries(sequence, g, first, end);
  }
}

void Manager::trim(Sequence& sequence, std::int64_t length) {
  sequence.tokens.resize(static_cast<std::size_t>(length));
  if (length >= sequence.length) return;
  sequence.length = length;
  if (options_.caches_prefixes) {
    std::int32_t node = sequence.node;
    while (index_.depth(node) * block() > length) node = index_.parent(node);
    if (node != sequence.node) set_node(sequence, node);
  }
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const PageGroup& rule = options_.groups[g];
    GroupPages& own = sequence.groups[g];
    const std::int64_t kept = ceil_div(length, rule.page_size);
    const auto had = static_cast<std::int64_t>(own.pages.size());
    if (had <= kept) continue;
    for (std::int64_t page = had; page-- > kept;) {
      const std::uint32_t id = std::exchange(own.pages[static_cast<std::size_t>(page)], kNoPage);
      if (id == kNoPage) continue;
      pool_at(rule.pool).device.release(id, sequence.priority);
    }
    write_entries(sequence, g, kept, had);
    own.pages.resize(static_cast<std::size_t>(kept));
    own.first = std::min(own.first, kept);
  }
  update_capacity(sequence);
  write_length(sequence);
}

SequenceId Manager::fork(const Sequence& sequence) {
  const auto parent = static_cast<std::size_t>(&sequence - sequences_.data());
  const SequenceId id = make_sequence();  // sequences_ may have moved
  const Sequence& from = sequences_[parent];
  Sequence& child = find(id, "fork");
  const std::uint32_t generation = child.generation;
  child = from;
  child.generation = generation;
  child.row = -1;
  child.is_pin = false;
  if (child.node >= 0) index_.retain(child.node);
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const PageGroup& rule = options_.groups[g];
    GroupPages& own = child.groups[g];
    // Pages that nothing was written to yet stay the parent's.
    own.pages.resize(std::min(own.pages.size(),
                              static_cast<std::size_t>(ceil_div(child.length, rule.page_size))));
    for (const std::uint32_t page : own.pages) {
      if (page != kNoPage) pool_at(rule.pool).device.retain(page);
    }
  }
  update_capacity(child);
  return id;
}

// The last pages first: of what is cached then, those are given up before the ones that lead to them.
void Manager::free(SequenceId id) {
  Sequence& sequence = find(id, "free");
  displace(sequence);
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    PagePool& device = pool_at(options_.groups[g].pool).device;
    GroupPages& own = sequence.groups[g];
    for (std::size_t page = own.pages.size(); page-- > static_cast<std::size_t>(own.first);) {
      if (own.pages[page] != kNoPage) device.release(own.pages[page], sequence.priority);
    }
    own.pages.clear();
    own.first = 0;
  }
  if (sequence.node >= 0) index_.release(sequence.node);
  sequence.tokens.clear();
  sequence.keys.clear();
  sequence.node = PrefixIndex::kNone;
  sequence.length = sequence.capacity = 0;
  sequence.is_live = sequence.is_pin = false;
  sequence.generation = (sequence.generation + 1) & 0x7fffffff;  // ids stay positive
  unused_.push_back(static_cast<std::uint32_t>(&sequence - sequences_.data()));
  --counts_.sequences;
}

}  // namespace quire::pages
