// SPDX-License-Identifier: Apache-2.0
// What a PageManager is told and what it answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace quire {

using SequenceId = std::int64_t;

enum class PageRule : std::uint8_t { full, sliding_window, chunk };

// Layers that share a page table.
struct PageGroup {
  PageRule rule = PageRule::full;
  std::int32_t page_size = 16;  // tokens; the largest of all groups is a multiple of each
  std::int64_t reach = 0;       // of a window or a chunk: tokens
  std::int32_t pool = 0;        // where its pages come from
};

// Pages whose ids are counted together: one tensor of the device, and one of the host.
struct PagePoolSizes {
  std::int64_t pages = 0;
  std::int64_t host_pages = 0;  // 0: there is no host tier
};

struct BlockHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const BlockHash&) const = default;
};

// Of a block of tokens behind `parent`; `key` stands for what else its contents depend on. Equal hashes alone never share
// a page: tokens, keys and parents are compared too.
using BlockHashFunction = BlockHash (*)(const BlockHash& parent,
                                        std::span<const std::int32_t> tokens, std::uint64_t key);

struct PageManagerOptions {
  std::vector<PageGroup> groups{PageGroup{}};
  std::vector<PagePoolSizes> pools{};
  bool caches_prefixes = true;
  bool reuses_partial_pages = true;  // only where all groups have the same page size
  std::size_t max_events = 0;        // kept until take_events; 0: none are recorded
  std::uint64_t hash_seed = 0;       // the same in all processes whose events are to be compared
  BlockHashFunction hash = nullptr;  // null: the manager's own
};

// A part of the tokens that stands for something else, an image for example: tokens alone do not say what their K and V
// are.
struct TokenKey {
  std::int64_t first = 0;  // token
  std::int64_t end = 0;
  std::string key;
};

// What pages may be shared by, beside the tokens.
struct SequenceKeys {
  std::string scope;               // of all tokens: adapter, tenant, salt
  std::vector<TokenKey> tokens{};  // in any order
};

inline constexpr int kPagePriorities = 8;

struct Admission {
  SequenceId id = -1;
  std::int64_t cached_tokens = 0;   // length() of the new sequence
  std::int64_t partial_tokens = 0;  // of those, the ones in pages that are copied
};

// What create would find now.
struct PrefixProbe {
  std::int64_t cached_tokens = 0;
  std::int64_t host_pages = 0;  // of the prefix, to be copied to the device
};

struct PageCopy {
  std::uint32_t source;
  std::uint32_t target;
  bool operator==(const PageCopy&) const = default;
};

// Of one pool, to be executed in this order and before the next kernels that read or write the cache. All layers, K and V,
// and the scales of a page move together.
struct PageCopies {
  std::vector<PageCopy> to_host;    // device page → host page
  std::vector<PageCopy> from_host;  // host page → device page
  std::vector<PageCopy> on_device;

  bool empty() const { return to_host.empty() && from_host.empty() && on_device.empty(); }
};

enum class PageTier : std::uint8_t { device, host };

// A page that can be shared from now on, or no longer: what a router needs to know where a prefix is cached.
struct PageEvent {
  bool is_stored = false;  // false: removed
  PageTier tier = PageTier::device;
  std::int32_t group = 0;
  BlockHash hash;                      // of the page's last block
  BlockHash parent;                    // of the block before that block
  std::int64_t end = 0;                // tokens up to the page's end
  std::vector<std::int32_t> tokens{};  // of that block; stored only
};

struct PageStatistics {
  std::vector<std::int64_t> free_pages{};    // of each pool
  std::vector<std::int64_t> cached_pages{};  // not in use, kept for later sequences
  std::vector<std::int64_t> used_pages{};
  std::vector<std::int64_t> host_pages{};  // that hold something
  std::int64_t sequences = 0;
  std::int64_t lookups = 0;         // create
  std::int64_t queried_tokens = 0;  // that could have been cached
  std::int64_t hit_tokens = 0;
  std::int64_t partial_tokens = 0;
  std::int64_t evicted_pages = 0;
  std::int64_t offloaded_pages = 0;
  std::int64_t onloaded_pages = 0;
  std::int64_t copied_pages = 0;  // on the device
  std::int64_t lost_events = 0;
};

// Arrays of the caller, [rows] and [rows, columns], that the manager keeps up to date for sequences that have a row. An
// entry without a page is kNoPage.
inline constexpr std::uint32_t kNoPage = 0xffffffff;

struct PageTableView {
  std::uint32_t* data = nullptr;
  std::int64_t row_stride = 0;  // entries
  std::int64_t columns = 0;
};

}  // namespace quire
