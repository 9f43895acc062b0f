// SPDX-License-Identifier: Apache-2.0
// The state of a PageManager, and what its operations are made of. No locks here: page_manager.cpp holds one around every
// public call.
//
//   page_pool.h      pages by what becomes of them: free, in use, cached
//   prefix_index.h   what is cached, as a tree of blocks
//   lookup.cpp       prefixes: create and probe
//   manager.cpp      extend, advance, trim, fork, free; pages taken and given back
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "pages/page_pool.h"
#include "pages/prefix_index.h"
#include "quire/page_manager_types.h"

namespace quire::pages {

// A sequence's pages of one group.
struct GroupPages {
  std::vector<std::uint32_t> pages{};  // kNoPage: given back, or never had
  std::int64_t first = 0;              // the pages before it have been given back
};

struct Sequence {
  std::vector<std::int32_t> tokens{};  // known ones
  std::int64_t length = 0;             // of them, in the cache
  std::int64_t capacity = 0;           // tokens that its pages have room for
  std::vector<GroupPages> groups{};
  std::vector<TokenKey> keys{};  // in the order of their tokens
  std::int32_t node =
      PrefixIndex::kNone;  // of its last block that is in the index; a root at first
  std::int64_t row = -1;   // of the tables
  std::uint32_t generation = 0;
  std::uint64_t last_call = 0;  // of those that name many sequences: none may be named twice
  std::uint8_t priority = 0;
  bool is_live = false;
  bool is_pin = false;
};

class Manager {
 public:
  explicit Manager(const PageManagerOptions& options);

  Admission create(std::span<const std::int32_t> tokens, const SequenceKeys& keys, int priority,
                   bool is_pin);
  PrefixProbe probe(std::span<const std::int32_t> tokens, const SequenceKeys& keys) const;
  void append(Sequence& sequence, std::span<const std::int32_t> tokens);
  bool extend(Sequence& sequence, std::int64_t count);
  void advance(Sequence& sequence, std::int64_t count);
  bool step(Sequence& sequence, std::int32_t token);
  void trim(Sequence& sequence, std::int64_t length);
  SequenceId fork(const Sequence& sequence);
  void free(SequenceId id);

  void bind_tables(std::span<const PageTableView> tables, std::uint32_t* cache_lengths,
                   std::int64_t rows);
  void place(SequenceId id, std::int64_t row);
  void displace(Sequence& sequence);

  PageCopies take_copies(int pool);
  std::vector<PageEvent> take_events();
  PageStatistics statistics() const;
  void clear_cache();

  // Throws unless the id is of a live sequence. `op`: for the message.
  Sequence& find(SequenceId id, const char* op);
  const Sequence& find(SequenceId id, const char* op) const;
  // The number of a call that names many sequences.
  std::uint64_t next_call() { return ++num_calls_; }
  const PageManagerOptions& options() const { return options_; }
  std::int64_t rows() const { return rows_; }
  const PageTableView& table(std::size_t group) const { return tables_[group]; }
  bool has_tables() const { return cache_lengths_ != nullptr; }

  // The first page of a group that a token at position `length` or later needs.
  static std::int64_t first_needed(const PageGroup& group, std::int64_t length);

 private:
  // A prefix that the index has: nodes[i] ends with block i.
  struct Match {
    std::int32_t root = PrefixIndex::kNone;
    std::vector<std::int32_t> nodes{};
    std::int64_t tokens = 0;                 // of it, that every group can serve
    std::vector<std::int64_t> host_pages{};  // of each pool, to be brought back for them
  };
  // A block that begins like the tokens behind a match.
  struct Partial {
    std::int32_t node = PrefixIndex::kNone;
    std::int64_t tokens = 0;
  };
  struct Pool {
    PagePool device;
    PagePool host;
    PageCopies copies{};
    std::unordered_map<std::uint32_t, std::uint32_t> copied_from{};  // sources by target, on_device
  };

  // lookup.cpp
  BlockHash root_hash(const std::string& scope) const;
  BlockHash hash_of(const BlockHash& parent, std::span<const std::int32_t> tokens,
                    const std::string& text) const;
  Match match(std::span<const std::int32_t> tokens, const SequenceKeys& keys) const;
  Match find_prefix(std::span<const std::int32_t> tokens, const SequenceKeys& keys) const;
  void choose_length(Match& match, bool may_use_host) const;
  std::int32_t node_of(const Match& match, std::size_t group, std::int64_t page) const;
  bool has_page(const Match& match, std::size_t group, std::int64_t page, bool may_use_host) const;
  bool serves(std::size_t group, std::int64_t tokens,
              std::span<const std::int64_t> run_begins) const;
  std::int64_t full_tokens(const Match& match, std::size_t group, bool may_use_host) const;
  std::vector<std::int64_t> run_begins(const Match& match, std::size_t group,
                                       bool may_use_host) const;
  void count_host_pages(Match& match) const;
  std::vector<std::int64_t> room_beside(const Match& match) const;
  Partial find_partial(const Match& match, std::span<const std::int32_t> tokens,
                       std::span<const TokenKey> keys) const;
  bool has_room(const Match& match, const Partial& partial) const;
  void attach(Sequence& sequence, const Match& match);
  void attach_host_pages(Sequence& sequence, const Match& match);
  std::vector<std::uint32_t> retain_sources(const Partial& partial);
  void attach_partial(Sequence& sequence, std::span<const std::uint32_t> sources,
                      std::int64_t tokens);

  // manager.cpp
  std::uint32_t take_page(int pool);
  std::uint32_t take_host_page(int pool);
  void evict(int pool, std::uint32_t page, bool may_offload);
  void drop_host_page(int pool, std::uint32_t page);
  bool is_writable(int pool, std::uint32_t page) const;
  bool may_unpublish(int pool, std::uint32_t page) const;
  void unpublish(int pool, std::uint32_t page);
  std::int64_t pages_wanted(const Sequence& sequence, std::size_t group, std::int64_t end) const;
  void make_writable(Sequence& sequence, std::size_t group);
  void publish_blocks(Sequence& sequence);
  void publish_pages(const Sequence& sequence, std::int32_t node);
  void release_unneeded(Sequence& sequence);
  void set_node(Sequence& sequence, std::int32_t node);
  void update_capacity(Sequence& sequence) const;
  SequenceId make_sequence();
  SequenceId id_of(const Sequence& sequence) const;

  // tables_and_records.cpp
  void copy_on_device(int pool, std::uint32_t source, std::uint32_t target);
  void write_entries(const Sequence& sequence, std::size_t group, std::int64_t first,
                     std::int64_t end);
  void write_length(const Sequence& sequence);
  void record(bool is_stored, PageTier tier, std::int32_t node, int group);

  std::int64_t block() const { return index_.block_tokens(); }
  Pool& pool_at(int number) { return pools_[static_cast<std::size_t>(number)]; }
  const Pool& pool_at(int number) const { return pools_[static_cast<std::size_t>(number)]; }
  std::int32_t block_key(std::span<const TokenKey> keys, std::int64_t first,
                         std::string& text) const;

  PageManagerOptions options_;
  std::int64_t largest_page_ = 0;               // tokens
  std::vector<std::int64_t> blocks_in_page_{};  // of each group
  bool same_page_size_ = true;
  bool has_host_ = false;
  PrefixIndex index_;
  std::vector<Pool> pools_{};
  std::vector<Sequence> sequences_{};
  std::vector<std::uint32_t> unused_{};  // sequences
  std::vector<std::int64_t> wanted_{};   // of each pool, by one call of extend
  std::vector<PageTableView> tables_{};
  std::vector<SequenceId> row_owners_{};
  std::uint32_t* cache_lengths_ = nullptr;
  std::int64_t rows_ = 0;
  std::uint64_t num_calls_ = 0;
  std::vector<PageEvent> events_{};
  PageStatistics counts_{};
};

}  // namespace quire::pages
