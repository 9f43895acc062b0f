// SPDX-License-Identifier: Apache-2.0
// What is cached, as a tree of blocks of tokens: a node is one block behind its parent's tokens, and names the pages that end
// with it, one of each group at most. A hash table over the chained hashes leads to nodes without a walk from the root; a
// node found by its hash is believed only if parent, tokens and key are the same.
//
// A node lives while sequences stand at it, a page ends with it, or it has children.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "pages/large_array.h"
#include "quire/page_manager_types.h"

namespace quire::pages {

// Texts that blocks depend on, as numbers: equal texts, equal numbers. Number 0 is the empty text.
class KeyTable {
 public:
  KeyTable() { entries_.push_back({}); }

  // -1: nobody has it.
  std::int32_t find(const std::string& text) const {
    if (text.empty()) return 0;
    const auto found = numbers_.find(text);
    return found == numbers_.end() ? -1 : found->second;
  }
  // One user more.
  std::int32_t retain(const std::string& text);
  void release(std::int32_t number);

 private:
  struct Entry {
    std::string text{};
    std::int64_t users = 0;
  };
  std::unordered_map<std::string, std::int32_t> numbers_{};
  std::vector<Entry> entries_{};
  std::vector<std::int32_t> unused_{};
};

class PrefixIndex {
 public:
  static constexpr std::int32_t kNone = -1;

  PrefixIndex(int block_tokens, int groups) : block_(block_tokens), groups_(groups) {
    const std::size_t words = kNodeWords + static_cast<std::size_t>(block_ + 2 * groups_);
    stride_ = (words + kLineWords - 1) / kLineWords * kLineWords;
    grow(1024);
  }

  int block_tokens() const { return block_; }

  // What a node is looked up by.
  struct Place {
    BlockHash hash;
    std::int32_t parent = kNone;
    std::span<const std::int32_t> tokens{};  // of the block; none: a root
    std::int32_t key = 0;
  };
  std::int32_t find(const Place& place) const { return find(place, first_slot(place.hash)); }

  // The same in three steps, for many places whose misses are to overlap: every step asks for what the next one reads, and
  // other places have their steps in between.
  void fetch_slot(const BlockHash& hash) const { prefetch(&slots_[slot_of(hash)]); }
  std::size_t fetch_record(const BlockHash& hash) const {
    const std::size_t slot = first_slot(hash);
    if (slots_[slot].node == 0) return slot;
    const std::uint32_t* words = record(static_cast<std::int32_t>(slots_[slot].node - 1));
    for (std::size_t word = 0; word < stride_; word += kLineWords) prefetch(words + word);
    return slot;
  }
  // slot: fetch_record's answer.
  std::int32_t find(const Place& place, std::size_t slot) const {
    for (; slots_[slot].node != 0;
         slot = next_slot((slot + 1) & (slots_.size() - 1), tag_of(place.hash))) {
      const auto node = static_cast<std::int32_t>(slots_[slot].node - 1);
      if (is_at(node, place)) return node;
    }
    return kNone;
  }

  // A new node, without users or pages. The key is the node's from now on.
  std::int32_t insert(const Place& place);

  void retain(std::int32_t node) { ++at(node).users; }
  // Removes the node, and then those above it, that nothing holds any more.
  void release(std::int32_t node) {
    --at(node).users;
    prune(node);
  }
  void prune(std::int32_t node);

  const BlockHash& hash(std::int32_t node) const { return at(node).hash; }
  std::int32_t parent(std::int32_t node) const { return at(node).parent; }
  std::int32_t depth(std::int32_t node) const { return at(node).depth; }  // blocks; 0: a root
  std::int32_t key(std::int32_t node) const { return at(node).key; }
  std::int32_t first_child(std::int32_t node) const { return at(node).first_child; }
  std::int32_t next_sibling(std::int32_t node) const { return at(node).next_sibling; }
  std::span<const std::int32_t> tokens(std::int32_t node) const {
    return {reinterpret_cast<const std::int32_t*>(record(node) + kNodeWords),
            static_cast<std::size_t>(block_)};
  }

  // kNoPage: none.
  std::uint32_t page(std::int32_t node, int group, PageTier tier) const {
    return record(node)[page_place(group, tier)];
  }
  // Callers prune the node when they have taken its last page.
  void set_page(std::int32_t node, int group, PageTier tier, std::uint32_t page);

  KeyTable& keys() { return keys_; }
  const KeyTable& keys() const { return keys_; }

 private:
  struct Node {
    BlockHash hash{};
    std::int32_t parent = kNone;
    std::int32_t first_child = kNone;
    std::int32_t next_sibling = kNone;
    std::int32_t previous_sibling = kNone;
    std::int32_t key = 0;
    std::int32_t depth = 0;
    std::int32_t users = 0;
    std::int32_t num_pages = 0;
  };
  // A slot: the node's number + 1 (0: empty), and 32 more bits of its hash.
  struct Slot {
    std::uint32_t node = 0;
    std::uint32_t tag = 0;
  };

  static constexpr std::size_t kNodeWords = sizeof(Node) / sizeof(std::uint32_t);
  static constexpr std::size_t kLineWords = 16;

  // The address is hidden from the compiler: on a Neoverse N1 a PRFM whose index register is shifted does nothing
  // (125 ns for a load behind one, 21 ns behind one of a plain address).
  static void prefetch(const void* address) {
    asm volatile("" : "+r"(address));
    __builtin_prefetch(address);
  }
  // Of those that may be the hash's, or the empty one behind them.
  std::size_t first_slot(const BlockHash& hash) const {
    return next_slot(slot_of(hash), tag_of(hash));
  }
  std::size_t next_slot(std::size_t slot, std::uint32_t tag) const {
    while (slots_[slot].node != 0 && slots_[slot].tag != tag)
      slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  const std::uint32_t* record(std::int32_t node) const {
    return records_.data() + static_cast<std::size_t>(node) * stride_;
  }
  std::uint32_t* record(std::int32_t node) {
    return records_.data() + static_cast<std::size_t>(node) * stride_;
  }
  const Node& at(std::int32_t node) const { return *reinterpret_cast<const Node*>(record(node)); }
  Node& at(std::int32_t node) { return *reinterpret_cast<Node*>(record(node)); }
  std::size_t slot_of(const BlockHash& hash) const { return hash.low & (slots_.size() - 1); }
  static std::uint32_t tag_of(const BlockHash& hash) {
    return static_cast<std::uint32_t>(hash.high);
  }
  // In a record.
  std::size_t page_place(int group, PageTier tier) const {
    return kNodeWords + static_cast<std::size_t>(block_) +
           static_cast<std::size_t>(tier) * static_cast<std::size_t>(groups_) +
           static_cast<std::size_t>(group);
  }
  bool is_at(std::int32_t node, const Place& place) const {
    const Node& found = at(node);
    return found.hash == place.hash && found.parent == place.parent && found.key == place.key &&
           are_equal(tokens(node).data(), place.tokens);
  }
  // Without a branch or a call for each token: blocks are short, and the same as a rule.
  static bool are_equal(const std::int32_t* own, std::span<const std::int32_t> tokens) {
    std::uint64_t differ = 0;
    std::size_t i = 0;
    for (; i + 4 <= tokens.size(); i += 4) {
      std::uint64_t a[2];
      std::uint64_t b[2];
      std::memcpy(a, own + i, sizeof(a));
      std::memcpy(b, tokens.data() + i, sizeof(b));
      differ |= (a[0] ^ b[0]) | (a[1] ^ b[1]);
    }
    for (; i < tokens.size(); ++i) differ |= static_cast<std::uint32_t>(own[i] ^ tokens[i]);
    return differ == 0;
  }
  void grow(std::size_t slots);
  void add_slot(std::int32_t node);
  void remove_slot(std::int32_t node);
  void unlink_from_parent(std::int32_t node);

  int block_;
  int groups_;
  // A record of whole cache lines for each node: the Node, its tokens, its pages of [tier, group].
  std::size_t stride_ = 0;  // words
  LargeArray<std::uint32_t> records_{};
  std::vector<std::int32_t> unused_{};  // nodes
  LargeArray<Slot> slots_{};            // a power of two, at most half of them taken
  std::int64_t num_nodes_ = 0;
  KeyTable keys_{};
};

}  // namespace quire::pages
