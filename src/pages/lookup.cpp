// SPDX-License-Identifier: Apache-2.0
// Prefixes: how much of a new sequence is cached, and the pages that it shares from then on.
//
// 1. match        blocks from the first on whose node is in the index
// 2. choose       the most tokens, a multiple of the largest page, for which every group has the pages that the next token
//                 needs: all of them, or those of the window or chunk before it
// 3. attach       those pages are in use; what stands on the host is brought back
// 4. partial      where the next block begins like a cached one, that page is copied
#include <algorithm>
#include <array>

#include "pages/block_hash.h"
#include "pages/manager.h"

namespace quire::pages {
namespace {

// Siblings that are compared for a partial page: the newest ones.
constexpr int kComparedSiblings = 64;
// Blocks of a batch: enough work to hide the memory's latency behind.
constexpr std::size_t kBatch = 8;

// As block_key reads them.
SequenceKeys in_order(SequenceKeys keys) {
  std::ranges::stable_sort(keys.tokens, {}, &TokenKey::first);
  return keys;
}

std::int64_t common_tokens(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

BlockHash Manager::root_hash(const std::string& scope) const {
  const BlockHash seed{.low = options_.hash_seed, .high = ~options_.hash_seed};
  return hash_of(seed, {}, scope);
}

// Of a block behind `parent`. `text`: what its tokens stand for.
BlockHash Manager::hash_of(const BlockHash& parent, std::span<const std::int32_t> tokens,
                           const std::string& text) const {
  const std::uint64_t key = text.empty() ? 0 : hash_text(text);
  return options_.hash == nullptr ? hash_block(parent, tokens, key)
                                  : options_.hash(parent, tokens, key);
}

// The number of what a block's tokens stand for; -1 if the index has no such block. `text`: filled with it.
std::int32_t Manager::block_key(std::span<const TokenKey> keys, std::int64_t first,
                                std::string& text) const {
  text.clear();
  for (const TokenKey& key : keys) {
    if (key.first >= first + block()) break;
    if (key.end <= first) continue;
    // Where it lies relative to the block, and a length before the text: no two lists read the same.
    text += std::to_string(key.first - first) + ',' + std::to_string(key.end - first) + ',' +
            std::to_string(key.key.size()) + ':' + key.key;
  }
  return index_.keys().find(text);
}

// In batches, each of which is hashed, then looked at in the slots, then compared with the nodes: what a step reads was asked
// for a batch before, and hashes, which need no node, are made while the memory answers.
Manager::Match Manager::match(std::span<const std::int32_t> tokens,
                              const SequenceKeys& keys) const {
  Match match;
  match.host_pages.assign(pools_.size(), 0);
  const std::int32_t scope = index_.keys().find(keys.scope);
  if (!options_.caches_prefixes || scope < 0) return match;
  BlockHash hash = root_hash(keys.scope);
  match.root = index_.find({.hash = hash, .key = scope});
  if (match.root < 0) return match;
  const auto size = static_cast<std::size_t>(block());
  const std::size_t blocks = tokens.size() / size;
  match.nodes.reserve(blocks);
  struct Ahead {
    BlockHash hash;
    std::int32_t key = 0;
    std::size_t slot = 0;
  };
  std::array<Ahead, 4 * kBatch> ahead{};  // of three batches; a power of two
  std::string text;
  std::int32_t parent = match.root;
  for (std::size_t first = 0; first < blocks + 2 * kBatch; first += kBatch) {
    const auto end_of = [&](std::size_t begin) { return std::min(begin + kBatch, blocks); };
    for (std::size_t i = first; i < end_of(first); ++i) {
      Ahead& now = ahead[i % ahead.size()];
      now.key = keys.tokens.empty()
                    ? 0
                    : block_key(keys.tokens, static_cast<std::int64_t>(i * size), text);
      now.hash = hash = hash_of(hash, tokens.subspan(i * size, size), text);
      index_.fetch_slot(hash);
    }
    if (first < kBatch) continue;
    for (std::size_t i = first - kBatch; i < end_of(first - kBatch); ++i) {
      Ahead& now = ahead[i % ahead.size()];
      now.slot = index_.fetch_record(now.hash);
    }
    if (first < 2 * kBatch) continue;
    for (std::size_t i = first - 2 * kBatch; i < end_of(first - 2 * kBatch); ++i) {
      const Ahead& now = ahead[i % ahead.size()];
      const PrefixIndex::Place place{.hash = now.hash,
                                     .parent = parent,
                                     .tokens = tokens.subspan(i * size, size),
                                     .key = now.key};
      parent = now.key < 0 ? PrefixIndex::kNone : index_.find(place, now.slot);
      if (parent < 0) return match;
      match.nodes.push_back(parent);
    }
  }
  return match;
}

// The node that a group's page ends with.
std::int32_t Manager::node_of(const Match& match, std::size_t group, std::int64_t page) const {
  return match.nodes[static_cast<std::size_t>((page + 1) * blocks_in_page_[group] - 1)];
}

bool Manager::has_page(const Match& match, std::size_t group, std::int64_t page,
                       bool may_use_host) const {
  const std::int32_t node = node_of(match, group, page);
  const auto g = static_cast<int>(group);
  return index_.page(node, g, PageTier::device) != kNoPage ||
         (may_use_host && index_.page(node, g, PageTier::host) != kNoPage);
}

// Tokens whose pages a group that needs all of them has.
std::int64_t Manager::full_tokens(const Match& match, std::size_t group, bool may_use_host) const {
  const std::int64_t page_size = options_.groups[group].page_size;
  const std::int64_t pages = static_cast<std::int64_t>(match.nodes.size()) / blocks_in_page_[group];
  std::int64_t page = 0;
  while (page < pages && has_page(match, group, page, may_use_host)) ++page;
  return page * page_size;
}

// For every page, where the run of pages that the index has, and that ends with it, begins; past it, if it has not even that.
std::vector<std::int64_t> Manager::run_begins(const Match& match, std::size_t group,
                                              bool may_use_host) const {
  const auto blocks = static_cast<std::size_t>(blocks_in_page_[group]);
  std::vector<std::int64_t> begins(match.nodes.size() / blocks);
  std::int64_t begin = 0;
  for (std::size_t page = 0; page < begins.size(); ++page) {
    if (!has_page(match, group, static_cast<std::int64_t>(page), may_use_host)) {
      begin = static_cast<std::int64_t>(page) + 1;
    }
    begins[page] = begin;
  }
  return begins;
}

// Whether a group that needs only the last pages has those.
bool Manager::serves(std::size_t group, std::int64_t tokens,
                     std::span<const std::int64_t> run_begins) const {
  const PageGroup& rule = options_.groups[group];
  const std::int64_t end = tokens / rule.page_size;
  const std::int64_t first = first_needed(rule, tokens);
  return first >= end || run_begins[static_cast<std::size_t>(end - 1)] <= first;
}

void Manager::choose_length(Match& match, bool may_use_host) const {
  std::int64_t tokens = static_cast<std::int64_t>(match.nodes.size()) * block();
  std::vector<std::vector<std::int64_t>> runs(options_.groups.size());
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    if (options_.groups[g].rule == PageRule::full) {
      tokens = std::min(tokens, full_tokens(match, g, may_use_host));
    } else {
      runs[g] = run_begins(match, g, may_use_host);
    }
  }
  tokens = tokens / largest_page_ * largest_page_;
  const auto is_served = [&](std::size_t g) {
    return options_.groups[g].rule == PageRule::full || serves(g, tokens, runs[g]);
  };
  while (tokens > 0) {
    bool all = true;
    for (std::size_t g = 0; g < runs.size() && all; ++g) all = is_served(g);
    if (all) break;
    tokens -= largest_page_;
  }
  match.tokens = tokens;
}

void Manager::count_host_pages(Match& match) const {
  std::ranges::fill(match.host_pages, 0);
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const PageGroup& group = options_.groups[g];
    for (std::int64_t page = first_needed(group, match.tokens);
         page < match.tokens / group.page_size; ++page) {
      if (!has_page(match, g, page, /*may_use_host=*/false)) {
        ++match.host_pages[static_cast<std::size_t>(group.pool)];
      }
    }
  }
}

// Of each pool, what is available once the match's own pages are in use.
std::vector<std::int64_t> Manager::room_beside(const Match& match) const {
  std::vector<std::int64_t> room(pools_.size());
  for (std::size_t p = 0; p < pools_.size(); ++p) room[p] = pools_[p].device.num_available();
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const PageGroup& group = options_.groups[g];
    const auto pool = static_cast<std::size_t>(group.pool);
    for (std::int64_t page = first_needed(group, match.tokens);
         page < match.tokens / group.page_size; ++page) {
      const std::uint32_t id =
          index_.page(node_of(match, g, page), static_cast<int>(g), PageTier::device);
      if (id != kNoPage && pools_[pool].device.is_cached(id)) --room[pool];
    }
  }
  for (std::size_t p = 0; p < pools_.size(); ++p) room[p] -= match.host_pages[p];
  return room;
}

Manager::Match Manager::find_prefix(std::span<const std::int32_t> tokens,
                                    const SequenceKeys& keys) const {
  Match found = match(tokens, keys);
  choose_length(found, has_host_);
  if (!has_host_) return found;
  count_host_pages(found);
  if (std::ranges::any_of(room_beside(found), [](std::int64_t room) { return room < 0; })) {
    choose_length(found, /*may_use_host=*/false);
    count_host_pages(found);
  }
  return found;
}

// The pages that are copied cannot make room for the copies.
bool Manager::has_room(const Match& match, const Partial& partial) const {
  // As a rule there is room for far more: a look at every page of the match would cost more than the match.
  const auto has_plenty = [&](const Pool& pool) {
    const auto groups = static_cast<std::int64_t>(options_.groups.size());
    const std::int64_t most =
        groups * (match.tokens / block() + 2);  // the match, a source and its copy
    return pool.device.num_available() > most;
  };
  if (std::ranges::all_of(pools_, has_plenty)) return true;
  std::vector<std::int64_t> room = room_beside(match);
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const auto pool = static_cast<std::size_t>(options_.groups[g].pool);
    const std::uint32_t source = index_.page(partial.node, static_cast<int>(g), PageTier::device);
    room[pool] -= 1 + (pools_[pool].device.is_cached(source) ? 1 : 0);
  }
  return std::ranges::all_of(room, [](std::int64_t left) { return left >= 0; });
}

Manager::Partial Manager::find_partial(const Match& match, std::span<const std::int32_t> tokens,
                                       std::span<const TokenKey> keys) const {
  Partial best;
  const bool ends_there = match.tokens == static_cast<std::int64_t>(match.nodes.size()) * block();
  if (!options_.reuses_partial_pages || !same_page_size_ || match.root < 0 || !ends_there) {
    return best;
  }
  const auto rest = tokens.subspan(static_cast<std::size_t>(match.tokens));
  const auto most = rest.first(std::min(rest.size(), static_cast<std::size_t>(block())));
  std::string text;
  const std::int32_t key = block_key(keys, match.tokens, text);
  std::int32_t child = index_.first_child(match.nodes.empty() ? match.root : match.nodes.back());
  for (int i = 0; child >= 0 && i < kComparedSiblings; ++i, child = index_.next_sibling(child)) {
    if (index_.key(child) != key) continue;
    bool has_pages = true;
    for (std::size_t g = 0; g < options_.groups.size(); ++g) {
      has_pages &= index_.page(child, static_cast<int>(g), PageTier::device) != kNoPage;
    }
    const std::int64_t common = has_pages ? common_tokens(most, index_.tokens(child)) : 0;
    if (common > best.tokens) best = {.node = child, .tokens = common};
  }
  return best.tokens > 0 && has_room(match, best) ? best : Partial{};
}

// Pages of the device first: none of them may make room for one that comes from the host.
void Manager::attach(Sequence& sequence, const Match& match) {
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const PageGroup& group = options_.groups[g];
    PagePool& pool = pool_at(group.pool).device;
    GroupPages& own = sequence.groups[g];
    const std::int64_t end = match.tokens / group.page_size;
    own.pages.assign(static_cast<std::size_t>(end), kNoPage);
    own.first = first_needed(group, match.tokens);
    for (std::int64_t page = own.first; page < end; ++page) {
      const std::uint32_t id =
          index_.page(node_of(match, g, page), static_cast<int>(g), PageTier::device);
      own.pages[static_cast<std::size_t>(page)] = id;
      if (id != kNoPage) pool.retain(id);
    }
  }
  if (has_host_) attach_host_pages(sequence, match);
  sequence.length = match.tokens;
}

void Manager::attach_host_pages(Sequence& sequence, const Match& match) {
  // No copy of what is about to be read may be given up for pages that make room.
  std::vector<std::pair<std::size_t, std::int64_t>> missing;  // group, page
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const GroupPages& own = sequence.groups[g];
    for (std::int64_t page = own.first; page < static_cast<std::int64_t>(own.pages.size());
         ++page) {
      if (own.pages[static_cast<std::size_t>(page)] != kNoPage) continue;
      pool_at(options_.groups[g].pool)
          .host.hold(index_.page(node_of(match, g, page), static_cast<int>(g), PageTier::host));
      missing.emplace_back(g, page);
    }
  }
  for (const auto& [g, page] : missing) {
    const int pool_number = options_.groups[g].pool;
    Pool& pool = pool_at(pool_number);
    const std::int32_t node = node_of(match, g, page);
    const std::uint32_t source = index_.page(node, static_cast<int>(g), PageTier::host);
    const std::uint32_t target = take_page(pool_number);
    pool.device.set_entry(target, {.node = node, .group = static_cast<std::int32_t>(g)});
    index_.set_page(node, static_cast<int>(g), PageTier::device, target);
    sequence.groups[g].pages[static_cast<std::size_t>(page)] = target;
    pool.device.hold(target);  // as the source is, until the copy was taken
    pool.copies.from_host.push_back({source, target});
    record(/*is_stored=*/true, PageTier::device, node, static_cast<int>(g));
    ++counts_.onloaded_pages;
  }
}

// The pages that are to be copied are in use from here on: what the prefix makes room for must not take them.
std::vector<std::uint32_t> Manager::retain_sources(const Partial& partial) {
  std::vector<std::uint32_t> sources;
  for (std::size_t g = 0; partial.tokens > 0 && g < options_.groups.size(); ++g) {
    sources.push_back(index_.page(partial.node, static_cast<int>(g), PageTier::device));
    pool_at(options_.groups[g].pool).device.retain(sources.back());
  }
  return sources;
}

void Manager::attach_partial(Sequence& sequence, std::span<const std::uint32_t> sources,
                             std::int64_t tokens) {
  for (std::size_t g = 0; g < sources.size(); ++g) {
    const int pool = options_.groups[g].pool;
    const std::uint32_t target = take_page(pool);
    copy_on_device(pool, sources[g], target);
    pool_at(pool).device.release(sources[g], sequence.priority);
    sequence.groups[g].pages.push_back(target);
  }
  sequence.length += tokens;
}

Admission Manager::create(std::span<const std::int32_t> tokens, const SequenceKeys& keys,
                          int priority, bool is_pin) {
  SequenceKeys sorted = in_order(keys);
  // At least one token is left to be computed, if any is to be.
  const auto looked_up =
      is_pin ? tokens : tokens.first(std::max<std::size_t>(tokens.size(), 1) - 1);
  Match found = find_prefix(looked_up, sorted);
  const Partial partial = is_pin ? Partial{} : find_partial(found, looked_up, sorted.tokens);
  const SequenceId id = make_sequence();
  Sequence& sequence = find(id, "create");
  sequence.tokens.assign(tokens.begin(), tokens.end());
  sequence.keys = std::move(sorted.tokens);
  sequence.priority = static_cast<std::uint8_t>(priority);
  sequence.is_pin = is_pin;
  if (options_.caches_prefixes) {
    if (found.root < 0) {
      const std::int32_t key = index_.keys().retain(keys.scope);
      found.root = index_.insert({.hash = root_hash(keys.scope), .key = key});
    }
    const std::int64_t blocks = found.tokens / block();
    sequence.node = blocks == 0 ? found.root : found.nodes[static_cast<std::size_t>(blocks - 1)];
    index_.retain(sequence.node);
  }
  const std::vector<std::uint32_t> sources = retain_sources(partial);
  attach(sequence, found);
  attach_partial(sequence, sources, partial.tokens);
  update_capacity(sequence);
  ++counts_.lookups;
  counts_.queried_tokens += static_cast<std::int64_t>(looked_up.size());
  counts_.hit_tokens += sequence.length;
  counts_.partial_tokens += partial.tokens;
  return {.id = id, .cached_tokens = sequence.length, .partial_tokens = partial.tokens};
}

PrefixProbe Manager::probe(std::span<const std::int32_t> tokens, const SequenceKeys& keys) const {
  SequenceKeys sorted = in_order(keys);
  const auto looked_up = tokens.first(std::max<std::size_t>(tokens.size(), 1) - 1);
  const Match found = find_prefix(looked_up, sorted);
  PrefixProbe probe{.cached_tokens =
                        found.tokens + find_partial(found, looked_up, sorted.tokens).tokens};
  for (const std::int64_t pages : found.host_pages) probe.host_pages += pages;
  return probe;
}

}  // namespace quire::pages
