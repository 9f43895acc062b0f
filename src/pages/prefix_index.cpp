// SPDX-License-Identifier: Apache-2.0
#include "pages/prefix_index.h"

#include <algorithm>
#include <utility>

namespace quire::pages {

std::int32_t KeyTable::retain(const std::string& text) {
  if (text.empty()) return 0;
  const auto [place, is_new] = numbers_.try_emplace(text, 0);
  if (is_new) {
    if (unused_.empty()) {
      place->second = static_cast<std::int32_t>(entries_.size());
      entries_.push_back({.text = text});
    } else {
      place->second = unused_.back();
      unused_.pop_back();
      entries_[static_cast<std::size_t>(place->second)] = {.text = text};
    }
  }
  ++entries_[static_cast<std::size_t>(place->second)].users;
  return place->second;
}

void KeyTable::release(std::int32_t number) {
  if (number <= 0) return;
  Entry& entry = entries_[static_cast<std::size_t>(number)];
  if (--entry.users > 0) return;
  numbers_.erase(entry.text);
  entry = {};
  unused_.push_back(number);
}

std::int32_t PrefixIndex::insert(const Place& place) {
  if (2 * (static_cast<std::size_t>(num_nodes_) + 1) > slots_.size()) grow(2 * slots_.size());
  std::int32_t node = 0;
  if (unused_.empty()) {
    node = static_cast<std::int32_t>(records_.size() / stride_);
    records_.resize(records_.size() + stride_, kNoPage);
  } else {
    node = unused_.back();
    unused_.pop_back();
  }
  Node& made = at(node);
  made = {.hash = place.hash, .parent = place.parent, .key = place.key};
  if (!place.tokens.empty())
    std::memcpy(record(node) + kNodeWords, place.tokens.data(), place.tokens.size_bytes());
  if (place.parent != kNone) {
    Node& parent = at(place.parent);
    made.depth = parent.depth + 1;
    made.next_sibling = parent.first_child;
    if (parent.first_child != kNone) {
      at(parent.first_child).previous_sibling = node;
    }
    parent.first_child = node;
  }
  add_slot(node);
  ++num_nodes_;
  return node;
}

void PrefixIndex::prune(std::int32_t node) {
  while (node != kNone) {
    const Node& now = at(node);
    if (now.users > 0 || now.num_pages > 0 || now.first_child != kNone) return;
    const std::int32_t parent = now.parent;
    unlink_from_parent(node);
    remove_slot(node);
    keys_.release(now.key);
    unused_.push_back(node);
    --num_nodes_;
    node = parent;
  }
}

void PrefixIndex::set_page(std::int32_t node, int group, PageTier tier, std::uint32_t page) {
  std::uint32_t& place = record(node)[page_place(group, tier)];
  Node& owner = at(node);
  owner.num_pages += (page == kNoPage ? 0 : 1) - (place == kNoPage ? 0 : 1);
  place = page;
}

void PrefixIndex::unlink_from_parent(std::int32_t node) {
  const Node& now = at(node);
  if (now.parent == kNone) return;
  if (now.previous_sibling == kNone) {
    at(now.parent).first_child = now.next_sibling;
  } else {
    at(now.previous_sibling).next_sibling = now.next_sibling;
  }
  if (now.next_sibling != kNone) {
    at(now.next_sibling).previous_sibling = now.previous_sibling;
  }
}

void PrefixIndex::grow(std::size_t slots) {
  const LargeArray<Slot> before = std::exchange(slots_, LargeArray<Slot>(slots));
  for (const Slot& slot : before) {
    if (slot.node != 0) add_slot(static_cast<std::int32_t>(slot.node - 1));
  }
}

void PrefixIndex::add_slot(std::int32_t node) {
  const BlockHash& hash = at(node).hash;
  std::size_t i = slot_of(hash);
  while (slots_[i].node != 0) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {.node = static_cast<std::uint32_t>(node) + 1, .tag = tag_of(hash)};
}

// Those behind it move up, so that no chain of slots has a hole.
void PrefixIndex::remove_slot(std::int32_t node) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t hole = slot_of(at(node).hash);
  while (slots_[hole].node != static_cast<std::uint32_t>(node) + 1) hole = (hole + 1) & mask;
  for (std::size_t i = (hole + 1) & mask; slots_[i].node != 0; i = (i + 1) & mask) {
    const std::size_t home = slot_of(at(static_cast<std::int32_t>(slots_[i].node - 1)).hash);
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    slots_[hole] = slots_[i];
    hole = i;
  }
  slots_[hole] = {};
}

}  // namespace quire::pages
