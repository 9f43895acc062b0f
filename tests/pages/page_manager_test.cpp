// SPDX-License-Identifier: Apache-2.0
// PageManager, one rule at a time. Random histories against a plain model: tests/python/test_page_manager.py.
#include "quire/page_manager.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <thread>

#include "quire/error.h"

namespace quire {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens count_from(std::int32_t first, std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

PageManagerOptions small(std::int64_t pages, std::int32_t page_size = 4, std::int64_t host = 0) {
  return {.groups = {{.page_size = page_size}}, .pools = {{.pages = pages, .host_pages = host}}};
}

// A sequence whose tokens are all in the cache.
SequenceId computed(PageManager& pages, const Tokens& tokens, const SequenceKeys& keys = {},
                    int priority = 4) {
  const Admission made = pages.create(tokens, keys, priority);
  const auto rest = static_cast<std::int64_t>(tokens.size()) - made.cached_tokens;
  EXPECT_TRUE(pages.extend(made.id, rest));
  pages.advance(made.id, rest);
  (void)pages.take_copies();
  return made.id;
}

std::int64_t cached(const PageManager& pages, const Tokens& tokens, const SequenceKeys& keys = {}) {
  return pages.probe(tokens, keys).cached_tokens;
}

TEST(PageManager, SharesThePagesOfACommonPrefix) {
  PageManager pages(small(16));
  const SequenceId first = computed(pages, count_from(0, 10));
  const Admission second = pages.create(count_from(0, 10));
  EXPECT_EQ(second.cached_tokens, 8);  // the third page is not full
  const auto a = pages.pages(first);
  const auto b = pages.pages(second.id);
  EXPECT_EQ(a[0], b[0]);
  EXPECT_EQ(a[1], b[1]);
}

TEST(PageManager, KeepsThePagesOfEndedSequences) {
  PageManager pages(small(16));
  pages.free(computed(pages, count_from(0, 12)));
  EXPECT_EQ(pages.statistics().cached_pages[0], 3);
  EXPECT_EQ(cached(pages, count_from(0, 13)), 12);
  // At least one token is left to be computed.
  EXPECT_EQ(cached(pages, count_from(0, 12)), 11);
}

TEST(PageManager, CopiesAPageOfWhichOnlyTheFirstTokensAreTheSame) {
  PageManager pages(small(16));
  const SequenceId first = computed(pages, count_from(0, 8));
  Tokens other = count_from(0, 8);
  other[6] = 99;
  const Admission second = pages.create(other);
  EXPECT_EQ(second.cached_tokens, 6);
  EXPECT_EQ(second.partial_tokens, 2);
  const PageCopies copies = pages.take_copies();
  ASSERT_EQ(copies.on_device.size(), 1U);
  EXPECT_EQ(copies.on_device[0].source, pages.pages(first)[1]);
  EXPECT_EQ(copies.on_device[0].target, pages.pages(second.id)[1]);
}

TEST(PageManager, OutOfPagesIsAnAnswerThatChangesNothing) {
  PageManager pages(small(3));
  const SequenceId first = computed(pages, count_from(0, 8));
  const Admission second = pages.create(count_from(100, 9));
  EXPECT_FALSE(pages.extend(second.id, 9));
  EXPECT_EQ(pages.statistics().free_pages[0], 1);
  EXPECT_TRUE(pages.extend(second.id, 4));
  pages.free(first);
  EXPECT_TRUE(pages.extend(second.id, 9));  // what the first one left makes room
  EXPECT_EQ(pages.statistics().evicted_pages, 2);
}

TEST(PageManager, EvictsLowPrioritiesFirstAndThenTheOldest) {
  PageManager pages(small(6));
  const SequenceId low = computed(pages, count_from(0, 8), {}, 1);
  const SequenceId high = computed(pages, count_from(100, 8), {}, 6);
  const SequenceId middle = computed(pages, count_from(200, 8), {}, 4);
  pages.free(middle);
  pages.free(high);
  pages.free(low);
  const SequenceId next = computed(pages, count_from(300, 12));
  EXPECT_EQ(cached(pages, count_from(0, 9)), 0);
  EXPECT_EQ(cached(pages, count_from(100, 9)), 8);
  EXPECT_EQ(cached(pages, count_from(200, 9)), 4);  // its last page went first
  pages.free(next);
}

TEST(PageManager, PinnedPrefixesStay) {
  PageManager pages(small(4));
  pages.free(computed(pages, count_from(0, 8)));
  const Admission pin = pages.pin(count_from(0, 8));
  EXPECT_EQ(pin.cached_tokens, 8);
  const Admission big = pages.create(count_from(100, 12));
  EXPECT_FALSE(pages.extend(big.id, 12));
  EXPECT_TRUE(pages.extend(big.id, 8));
  EXPECT_EQ(cached(pages, count_from(0, 9)), 8);
  pages.free(pin.id);
  EXPECT_TRUE(pages.extend(big.id, 12));
}

TEST(PageManager, AForkCopiesThePageThatBothWouldWrite) {
  PageManager pages(small(8));
  const SequenceId parent = computed(pages, count_from(0, 6));
  const SequenceId child = pages.fork(parent);
  EXPECT_EQ(pages.pages(parent), pages.pages(child));
  pages.append(child, Tokens{50});
  ASSERT_TRUE(pages.extend(child, 1));
  const PageCopies copies = pages.take_copies();
  ASSERT_EQ(copies.on_device.size(), 1U);
  EXPECT_EQ(pages.pages(parent)[0], pages.pages(child)[0]);
  EXPECT_NE(pages.pages(parent)[1], pages.pages(child)[1]);
  pages.append(parent, Tokens{51});
  ASSERT_TRUE(pages.extend(parent, 1));  // the page is its own again
  EXPECT_TRUE(pages.take_copies().empty());
}

TEST(PageManager, ExtendingTwiceBeforeCopiesAreTakenCopiesOnce) {
  PageManager pages(small(8));
  const SequenceId parent = computed(pages, count_from(0, 6));
  const SequenceId child = pages.fork(parent);
  ASSERT_TRUE(pages.extend(child, 1));
  ASSERT_TRUE(pages.extend(child, 2));
  EXPECT_EQ(pages.take_copies().on_device.size(), 1U);
}

// copy_pages refuses a page that is both source and target: a list is one step.
TEST(PageManager, ACopyOfACopyThatWasNotTakenYetReadsTheFirstSource) {
  PageManager pages(small(8));
  const SequenceId parent = computed(pages, count_from(0, 6));
  const SequenceId child = pages.fork(parent);
  ASSERT_TRUE(pages.extend(child, 1));
  const SequenceId grandchild = pages.fork(child);
  ASSERT_TRUE(pages.extend(grandchild, 1));
  const std::uint32_t source = pages.pages(parent)[1];
  const PageCopies copies = pages.take_copies();
  const std::vector<PageCopy> expected{{source, pages.pages(child)[1]},
                                       {source, pages.pages(grandchild)[1]}};
  EXPECT_EQ(copies.on_device, expected);
  // Taken ones are done: what is copied then is the copy.
  const SequenceId late = pages.fork(child);
  ASSERT_TRUE(pages.extend(late, 1));
  const PageCopies later = pages.take_copies();
  ASSERT_EQ(later.on_device.size(), 1U);
  EXPECT_EQ(later.on_device[0].source, expected[0].target);
  for (const SequenceId id : {parent, child, grandchild, late}) pages.free(id);
  EXPECT_EQ(pages.statistics().used_pages[0], 0);
}

// More copies of one page in a step than 16 bits count.
TEST(PageManager, APageIsKeptForAsManyCopiesAsThereAre) {
  constexpr int kForks = 66000;
  PageManager pages(small(kForks + 8));
  const SequenceId parent = computed(pages, count_from(0, 6));
  std::vector<SequenceId> children;
  for (int i = 0; i < kForks; ++i) {
    children.push_back(pages.fork(parent));
    ASSERT_TRUE(pages.extend(children.back(), 1));
  }
  const std::uint32_t source = pages.pages(parent)[1];
  pages.free(parent);
  for (const SequenceId id : children) pages.free(id);
  // Nobody has it, but the copies have not been taken.
  const SequenceId other = pages.create(count_from(100, 4)).id;
  ASSERT_TRUE(pages.extend(other, 4));
  EXPECT_NE(pages.pages(other)[0], source);
  EXPECT_EQ(pages.take_copies().on_device.size(), static_cast<std::size_t>(kForks));
  pages.free(other);
  pages.clear_cache();
  EXPECT_EQ(pages.statistics().free_pages[0], kForks + 8);
}

TEST(PageManager, TrimmingTakesPagesBackAndUnsharesTheLast) {
  PageManager pages(small(8));
  const SequenceId id = computed(pages, count_from(0, 12));
  pages.trim(id, 6);
  EXPECT_EQ(pages.length(id), 6);
  EXPECT_EQ(pages.pages(id).size(), 2U);
  pages.append(id, Tokens{70, 71});
  ASSERT_TRUE(pages.extend(id, 2));
  EXPECT_TRUE(pages.take_copies().empty());  // nobody else used the page
  pages.advance(id, 2);
  EXPECT_EQ(cached(pages, count_from(0, 9)), 4);  // the page of 4 … 7 is overwritten
  EXPECT_EQ(cached(pages, {0, 1, 2, 3, 4, 5, 70, 71, 1}), 8);
}

TEST(PageManager, AWindowGivesPagesBack) {
  PageManager one(
      {.groups = {{.page_size = 4}, {.rule = PageRule::sliding_window, .page_size = 4, .reach = 6}},
       .pools = {{.pages = 64}}});
  const SequenceId id = computed(one, count_from(0, 16));
  const auto window = one.pages(id, 1);
  // The token at 16 sees keys from 11 on: pages 0 and 1 are gone.
  EXPECT_EQ(window[0], kNoPage);
  EXPECT_EQ(window[1], kNoPage);
  EXPECT_NE(window[2], kNoPage);
  EXPECT_EQ(one.pages(id, 0).size(), 4U);
  EXPECT_NE(one.pages(id, 0)[0], kNoPage);
  EXPECT_EQ(cached(one, count_from(0, 17)), 16);
  EXPECT_THROW(one.trim(id, 8), Error);
}

TEST(PageManager, AWindowNeedsOnlyItsLastPagesForAPrefix) {
  PageManager pages({.groups = {{.rule = PageRule::sliding_window, .page_size = 4, .reach = 5}},
                     .pools = {{.pages = 5}}});
  pages.free(computed(pages, count_from(0, 16)));
  const SequenceId other = computed(pages, count_from(100, 8));  // takes the oldest pages
  EXPECT_EQ(cached(pages, count_from(0, 17)), 16);
  EXPECT_EQ(cached(pages, count_from(0, 9)), 8);
  EXPECT_EQ(cached(pages, count_from(0, 5)), 0);  // its first page made room
  pages.free(other);
}

TEST(PageManager, AChunkNeedsOnlyItsOwnPages) {
  PageManager pages({.groups = {{.rule = PageRule::chunk, .page_size = 4, .reach = 8}},
                     .pools = {{.pages = 16}}});
  const SequenceId id = computed(pages, count_from(0, 12));
  EXPECT_EQ(pages.pages(id)[0], kNoPage);
  EXPECT_EQ(pages.pages(id)[1], kNoPage);
  EXPECT_NE(pages.pages(id)[2], kNoPage);
}

TEST(PageManager, GroupsOfDifferentPageSizesShareWholeLargePages) {
  PageManager pages({.groups = {{.page_size = 8}, {.page_size = 4, .pool = 1}},
                     .pools = {{.pages = 16}, {.pages = 16}}});
  pages.free(computed(pages, count_from(0, 20)));
  EXPECT_EQ(cached(pages, count_from(0, 21)), 16);
}

TEST(PageManager, ScopesAndTokenKeysKeepTenantsAndImagesApart) {
  PageManager pages(small(64));
  const Tokens tokens = count_from(0, 12);
  const Tokens longer = count_from(0, 13);
  pages.free(computed(pages, tokens, {.scope = "tenant a"}));
  EXPECT_EQ(cached(pages, longer), 0);
  EXPECT_EQ(cached(pages, longer, {.scope = "tenant b"}), 0);
  EXPECT_EQ(cached(pages, longer, {.scope = "tenant a"}), 12);
  const SequenceKeys cat{.scope = {}, .tokens = {{.first = 5, .end = 7, .key = "cat"}}};
  const SequenceKeys dog{.scope = {}, .tokens = {{.first = 5, .end = 7, .key = "dog"}}};
  pages.free(computed(pages, tokens, cat));
  EXPECT_EQ(cached(pages, longer, cat), 12);
  EXPECT_EQ(cached(pages, longer, dog), 4);  // the block before the image
  EXPECT_EQ(cached(pages, longer), 4);
}

BlockHash same_for_all(const BlockHash&, std::span<const std::int32_t>, std::uint64_t) {
  return {.low = 7, .high = 7};
}

TEST(PageManager, EqualHashesNeverShareAPage) {
  PageManagerOptions options = small(64);
  options.hash = same_for_all;
  options.reuses_partial_pages = false;
  PageManager pages(options);
  const SequenceId a = computed(pages, count_from(0, 12), {.scope = "a"});
  const SequenceId b = computed(pages, count_from(0, 12), {.scope = "b"});
  const SequenceId c = computed(pages, count_from(50, 12), {.scope = "a"});
  std::set<std::uint32_t> all;
  for (const SequenceId id : {a, b, c}) {
    for (const std::uint32_t page : pages.pages(id)) EXPECT_TRUE(all.insert(page).second);
  }
  EXPECT_EQ(cached(pages, count_from(0, 13), {.scope = "b"}), 12);
  EXPECT_EQ(cached(pages, count_from(50, 13), {.scope = "b"}), 0);
}

// Blocks that are the same but for what stands before them.
TEST(PageManager, EqualBlocksBehindOthersAreOthers) {
  PageManagerOptions options = small(64);
  options.hash = same_for_all;
  PageManager pages(options);
  const SequenceId zeros = computed(pages, Tokens(12, 0));
  Tokens mixed = count_from(1, 12);
  std::fill(mixed.begin() + 4, mixed.begin() + 8, 0);
  const SequenceId other = computed(pages, mixed);
  std::set<std::uint32_t> all;
  for (const SequenceId id : {zeros, other}) {
    for (const std::uint32_t page : pages.pages(id)) EXPECT_TRUE(all.insert(page).second);
  }
  EXPECT_EQ(cached(pages, Tokens(13, 0)), 12);
  pages.free(zeros);
  pages.free(other);
  pages.clear_cache();
  EXPECT_EQ(pages.statistics().free_pages[0], 64);
}

TEST(PageManager, EvictedPagesGoToTheHostAndComeBack) {
  PageManager pages(small(3, 4, 8));
  pages.free(computed(pages, count_from(0, 12)));
  const SequenceId other = computed(pages, count_from(100, 12));
  EXPECT_EQ(pages.statistics().offloaded_pages, 3);
  const PrefixProbe probe = pages.probe(count_from(0, 13));
  EXPECT_EQ(probe.cached_tokens, 0);  // all pages of the device are in use
  pages.free(other);
  EXPECT_EQ(pages.probe(count_from(0, 13)).host_pages, 3);
  const Admission back = pages.create(count_from(0, 13));
  EXPECT_EQ(back.cached_tokens, 12);
  const PageCopies copies = pages.take_copies();
  EXPECT_EQ(copies.from_host.size(), 3U);
  EXPECT_EQ(copies.to_host.size(), 3U);  // of the other one
}

TEST(PageManager, TheHostGivesUpLowPrioritiesFirst) {
  PageManager pages(small(3, 4, 4));
  pages.free(computed(pages, count_from(0, 8), {}, 6));     // two pages that matter
  pages.free(computed(pages, count_from(100, 12), {}, 1));  // three that do not
  // One after another: what a copy writes to is kept until it was taken.
  std::vector<SequenceId> others;
  for (int i = 0; i < 3; ++i) others.push_back(computed(pages, count_from(200 + 100 * i, 4)));
  for (const SequenceId id : others) pages.free(id);
  // Of the five pages that made room, the host has place for four.
  EXPECT_EQ(pages.probe(count_from(0, 9)).host_pages, 2);
  EXPECT_EQ(cached(pages, count_from(0, 9)), 8);
  EXPECT_EQ(cached(pages, count_from(100, 13)), 8);
}

TEST(PageManager, TablesAndLengthsAreWrittenInPlace) {
  PageManager pages(small(16));
  std::vector<std::uint32_t> table(3 * 8);
  std::vector<std::uint32_t> lengths(3, 77);
  const PageTableView view{.data = table.data(), .row_stride = 8, .columns = 8};
  pages.bind_tables({&view, 1}, lengths.data(), 3);
  const SequenceId id = computed(pages, count_from(0, 6));
  pages.place(id, 1);
  EXPECT_EQ(lengths, (std::vector<std::uint32_t>{0, 6, 0}));
  EXPECT_EQ(table[8], pages.pages(id)[0]);
  EXPECT_EQ(table[10], kNoPage);
  const std::vector<SequenceId> ids{id};
  for (std::int32_t token = 6; token < 9; ++token) {
    const Tokens one{token};
    EXPECT_EQ(pages.step(ids, one), 1);
    pages.advance_all(ids);
  }
  EXPECT_EQ(lengths[1], 9U);
  EXPECT_EQ(table[10], pages.pages(id)[2]);
  EXPECT_THROW((void)pages.extend(id, 100), Error);
  pages.free(id);
  EXPECT_EQ(lengths[1], 0U);
  EXPECT_EQ(table[8], kNoPage);
}

TEST(PageManager, EventsSayWhatCanBeShared) {
  PageManagerOptions options = small(4);
  options.max_events = 3;
  PageManager pages(options);
  pages.free(computed(pages, count_from(0, 8)));
  std::vector<PageEvent> events = pages.take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_TRUE(events[0].is_stored);
  EXPECT_EQ(events[0].tokens, count_from(0, 4));
  EXPECT_EQ(events[1].parent, events[0].hash);
  EXPECT_EQ(events[1].end, 8);
  pages.clear_cache();
  events = pages.take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_FALSE(events[0].is_stored);
  EXPECT_EQ(pages.statistics().free_pages[0], 4);
  pages.free(computed(pages, count_from(0, 16)));
  EXPECT_EQ(pages.statistics().lost_events, 1);
}

TEST(PageManager, MisuseIsAnErrorThatChangesNothing) {
  PageManager pages(small(8));
  const SequenceId id = computed(pages, count_from(0, 6));
  const SequenceId ended = computed(pages, count_from(0, 6));
  pages.free(ended);
  const PageStatistics before = pages.statistics();
  EXPECT_THROW(pages.free(ended), Error);
  EXPECT_THROW(pages.advance(id, 1), Error);  // no such token is known
  EXPECT_THROW(pages.trim(id, 7), Error);
  EXPECT_THROW((void)pages.extend(id, -1), Error);
  EXPECT_THROW((void)pages.extend(-1, 1), Error);
  EXPECT_THROW(pages.place(id, 0), Error);
  EXPECT_THROW((void)pages.create(count_from(0, 4), {}, 8), Error);
  EXPECT_THROW((void)pages.take_copies(1), Error);
  const std::vector<SequenceId> ids{id, ended};
  EXPECT_THROW((void)pages.step(ids, Tokens{1, 2}), Error);
  const std::vector<SequenceId> twice{id, id};
  EXPECT_THROW((void)pages.step(twice, Tokens{1, 2}), Error);
  EXPECT_EQ(pages.tokens(id), count_from(0, 6));
  pages.append(id, Tokens{6});
  ASSERT_TRUE(pages.extend(id, 1));
  EXPECT_THROW(pages.advance_all(twice), Error);  // only one token more is known
  EXPECT_EQ(pages.length(id), 6);
  pages.trim(id, 6);
  EXPECT_EQ(pages.statistics().used_pages, before.used_pages);
  EXPECT_THROW(
      PageManager({.groups = {{.page_size = 6}, {.page_size = 4}}, .pools = {{.pages = 1}}}),
      Error);
  EXPECT_THROW(PageManager(small(0)), Error);
}

// Calls from several threads run one after another; the thread sanitizer reads along.
TEST(PageManager, ThreadsMayShareAManager) {
  PageManagerOptions options = small(256);
  options.max_events = 64;
  PageManager pages(options);
  std::vector<std::thread> threads;
  threads.emplace_back([&pages] {  // a router beside the engines
    for (int i = 0; i < 400; ++i) {
      const Tokens tokens = count_from(100 * (i % 7), 24);
      EXPECT_LE(pages.probe(tokens).cached_tokens, 23);
      for (const PageEvent& event : pages.take_events()) EXPECT_EQ(event.end % 4, 0);
      pages.free(pages.pin(tokens).id);
      const PageStatistics now = pages.statistics();
      EXPECT_EQ(now.free_pages[0] + now.cached_pages[0] + now.used_pages[0], 256);
    }
  });
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pages, t] {
      for (int i = 0; i < 200; ++i) {
        const Tokens tokens = count_from(100 * (i % 7), static_cast<std::size_t>(5 + i % 23));
        const Admission made = pages.create(tokens, {.scope = t % 2 == 0 ? "" : "b"});
        const auto rest = static_cast<std::int64_t>(tokens.size()) - made.cached_tokens;
        if (pages.extend(made.id, rest)) pages.advance(made.id, rest);
        (void)pages.take_copies();
        const SequenceId child = pages.fork(made.id);
        pages.free(made.id);
        pages.free(child);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const PageStatistics end = pages.statistics();
  EXPECT_EQ(end.used_pages[0], 0);
  EXPECT_EQ(end.sequences, 0);
}

}  // namespace
}  // namespace quire
