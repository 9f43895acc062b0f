// SPDX-License-Identifier: Apache-2.0
// Which page holds which tokens: the host's side of a paged KV cache, for engines that schedule requests.
//
// A manager has no tensors. It hands out page ids, shares pages between sequences that begin with the same tokens, keeps
// pages of ended sequences for later ones, and writes page tables and lengths where the ops read them. Where bytes have
// to move it answers with lists of copies (take_copies), which the caller executes with copy_pages or a copy engine.
//
//   PageManager pages({.pools = {{.pages = 4096}}});
//   const Admission request = pages.create(tokens);         // shares what is cached of the prefix
//   while (pages.length(request.id) < prompt) {
//     if (!pages.extend(request.id, chunk)) ...             // out of pages: preempt, or wait
//     execute(pages.take_copies());                         // before the kernels of the step
//     ...                                                   // ops over page_table and cache_lengths
//     pages.advance(request.id, chunk);                     // the chunk's K and V are in their pages
//   }
//   pages.append(request.id, {sampled}), pages.extend(request.id, 1) ... pages.free(request.id);
//
// A sequence has known tokens (create, append), of which the first length() are in the cache (advance), and pages for as
// many as it was extended to. Its layers form groups, each with a page size and a rule for the keys that later tokens
// need: all of them, the last `reach` (sliding window), or those of the same chunk of `reach`. Pages that no later token
// needs are given back as the sequence advances.
//
// Out of pages is an answer, not an error. Misuse (an id that is not live, tokens past the known ones, tables that are too
// small) is a quire::Error that changes nothing.
//
// Every function may be called from any thread; calls of one manager run one after another. The arrays that bind_tables
// was given are written inside such calls: whoever reads them keeps calls away meanwhile, or copies them first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/export.h"
#include "quire/page_manager_types.h"

namespace quire {

class QUIRE_API PageManager {
 public:
  explicit PageManager(const PageManagerOptions& options);
  ~PageManager();
  PageManager(const PageManager&) = delete;
  PageManager& operator=(const PageManager&) = delete;

  // A new sequence that shares the cached pages of its prefix. At least one token is left to be computed.
  // `priority`: pages of lower ones are taken first once nobody uses them.
  Admission create(std::span<const std::int32_t> tokens, const SequenceKeys& keys = {},
                   int priority = kPagePriorities / 2);
  PrefixProbe probe(std::span<const std::int32_t> tokens, const SequenceKeys& keys = {}) const;
  // A sequence that holds the cached pages of these tokens and is never extended, until it is freed.
  Admission pin(std::span<const std::int32_t> tokens, const SequenceKeys& keys = {});

  void append(SequenceId id, std::span<const std::int32_t> tokens);
  // Pages for `count` tokens behind length(). False: there are not enough, and nothing has changed.
  [[nodiscard]] bool extend(SequenceId id, std::int64_t count);
  // `count` more tokens are in the cache, known ones: full pages can be shared from now on.
  void advance(SequenceId id, std::int64_t count);
  // A decode step of many sequences: append one token, extend by one. Answers how many were served, in order; the next
  // one would be out of pages, and has not been changed.
  [[nodiscard]] std::int64_t step(std::span<const SequenceId> ids,
                                  std::span<const std::int32_t> tokens);
  void advance_all(std::span<const SequenceId> ids);  // by one token each

  // Forgets known tokens from `length` on, and what the cache holds of them.
  void trim(SequenceId id, std::int64_t length);
  // Shares all pages; the page that both would write is copied when one of them is extended.
  SequenceId fork(SequenceId id);
  void free(SequenceId id);

  std::int64_t length(SequenceId id) const;
  std::vector<std::int32_t> tokens(SequenceId id) const;
  std::vector<std::uint32_t> pages(SequenceId id, int group = 0) const;

  // tables: one for each group. All rows are empty then: sequences that had one have none until they are placed again.
  void bind_tables(std::span<const PageTableView> tables, std::uint32_t* cache_lengths,
                   std::int64_t rows);
  // The sequence's row from now on; its table entries and length are written. Rows without a sequence have length 0.
  void place(SequenceId id, std::int64_t row);
  void displace(SequenceId id);

  // Pages that a copy reads or writes are kept for it until it was taken.
  PageCopies take_copies(int pool = 0);
  std::vector<PageEvent> take_events();
  PageStatistics statistics() const;
  // Forgets all that is cached and not in use.
  void clear_cache();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
