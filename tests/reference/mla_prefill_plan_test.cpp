// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_prefill_plan.h"

#include <gtest/gtest.h>

#include <ostream>
#include <utility>
#include <vector>

#include "quire/error.h"
#include "reference/ragged.h"
#include "support/attention_inputs.h"

namespace quire::reference {
namespace {

using test::ChunkMemory;
using test::kTestLayer;
using test::TestCache;
using Values = std::vector<double>;

TestCache cache_of(std::vector<std::uint32_t> cached, std::vector<std::uint32_t> fresh,
                   std::int64_t page_size) {
  return TestCache({.cache_lengths = std::move(cached),
                    .new_tokens = std::move(fresh),
                    .row_format = RowFormat::uniform(DType::u8, 2),
                    .page_size = page_size,
                    .num_kv_heads = 1,
                    .is_mla = true});
}

ChunkMemory planned(const TestCache& cache, std::int64_t max_chunks, std::int64_t buffer_tokens) {
  ChunkMemory chunks(max_chunks, cache.view().batch(), buffer_tokens);
  reference::mla_prefill_plan({.row_offsets = cache.row_offsets(),
                               .cache = cache.view(),
                               .layer = kTestLayer,
                               .chunks = chunks.view()});
  return chunks;
}

TEST(MlaPrefillPlanTest, golden_two_prompts) {
  const ChunkMemory chunks = planned(cache_of({0, 0}, {160, 200}, 128), 4, 256);
  EXPECT_EQ(chunks.buffer_row_offsets.values(), (Values{0, 256, 256, 0, 0, 256, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(chunks.cache_offsets.values(), (Values{0, 0, 0, 256, 0, 0, 256, 256, 0, 256, 256, 0}));
  EXPECT_EQ(chunks.buffer_lengths.values(), (Values{256, 256, -1, -1}));
}

TEST(MlaPrefillPlanTest, golden_a_sequence_over_three_chunks) {
  // Spans of 4, 20 and 4 rows on a line cut every 8: the middle one takes 4, 8 and 8.
  const ChunkMemory chunks = planned(cache_of({1, 15, 0}, {2, 3, 4}, 4), 5, 8);
  EXPECT_EQ(chunks.buffer_row_offsets.values(), (Values{0, 4, 8, 8,  //
                                                        0, 0, 8, 8,  //
                                                        0, 0, 8, 8,  //
                                                        0, 0, 0, 4,  //
                                                        0, 0, 0, 0}));
  EXPECT_EQ(chunks.cache_offsets.values(), (Values{0, 0,  0, 0,  //
                                                   4, 4,  0, 0,  //
                                                   4, 12, 0, 0,  //
                                                   4, 20, 0, 0,  //
                                                   4, 20, 4, 0}));
  EXPECT_EQ(chunks.buffer_lengths.values(), (Values{8, 8, 8, 4, -1}));
}

TEST(MlaPrefillPlanTest, golden_one_shot) {
  const ChunkMemory chunks = planned(cache_of({0, 7}, {5, 1}, 4), 1, 16384);
  EXPECT_EQ(chunks.buffer_row_offsets.values(), (Values{0, 8, 16}));
  EXPECT_EQ(chunks.cache_offsets.values(), (Values{0, 0, 0}));
  EXPECT_EQ(chunks.buffer_lengths.values(), (Values{16}));
}

TEST(MlaPrefillPlanTest, empty_sequences_take_no_rows) {
  const ChunkMemory chunks = planned(cache_of({0, 0, 0}, {0, 3, 0}, 4), 2, 8);
  EXPECT_EQ(chunks.buffer_row_offsets.values(), (Values{0, 0, 4, 4, 0, 0, 0, 0}));
  EXPECT_EQ(chunks.buffer_lengths.values(), (Values{4, -1}));
}

TEST(MlaPrefillPlanTest, decoded_sequences_take_no_rows) {
  const TestCache cache = cache_of({9, 1, 0, 5}, {1, 3, 0, 4}, 4);
  const ChunkMemory chunks(2, 4, 8);
  MlaPrefillChunks view = chunks.view();
  view.decode_tokens = 3;
  reference::mla_prefill_plan({.row_offsets = cache.row_offsets(),
                               .cache = cache.view(),
                               .layer = kTestLayer,
                               .chunks = view});
  EXPECT_EQ(chunks.buffer_row_offsets.values(), (Values{0, 0, 0, 0, 8, 0, 0, 0, 0, 4}));
  EXPECT_EQ(chunks.cache_offsets.values(), (Values{0, 0, 0, 0, 0, 0, 0, 0, 8, 0}));
  EXPECT_EQ(chunks.buffer_lengths.values(), (Values{8, 4}));
}

TEST(MlaPrefillPlanTest, a_batch_of_zero_has_lengths_of_zero) {
  const ChunkMemory chunks = planned(cache_of({}, {}, 4), 2, 8);
  EXPECT_EQ(chunks.buffer_lengths.values(), (Values{0, 0}));
  EXPECT_EQ(chunks.buffer_row_offsets.values(), (Values{0, 0}));
}

TEST(MlaPrefillPlanTest, sequences_without_keys_leave_every_chunk_unused) {
  const ChunkMemory chunks = planned(cache_of({0, 0}, {0, 0}, 4), 2, 8);
  EXPECT_EQ(chunks.buffer_lengths.values(), (Values{-1, -1}));
}

TEST(MlaPrefillPlanTest, too_few_chunks_are_an_error_and_nothing_is_written) {
  const TestCache cache = cache_of({0, 0}, {160, 200}, 128);
  const ChunkMemory chunks(1, 2, 256);
  const Values before = chunks.buffer_row_offsets.values();
  try {
    reference::mla_prefill_plan({.row_offsets = cache.row_offsets(),
                                 .cache = cache.view(),
                                 .layer = kTestLayer,
                                 .chunks = chunks.view()});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_value);
    EXPECT_STREQ(error.what(),
                 "mla_prefill_plan: 'chunks' must be at least 2 chunks of 256 tokens, got 1");
  }
  EXPECT_EQ(chunks.buffer_row_offsets.values(), before);
}

struct PlanCase {
  std::vector<std::uint32_t> cached;
  std::vector<std::uint32_t> fresh;
  std::int64_t page_size;
  std::int64_t buffer_tokens;
  std::int64_t num_chunks;
};

std::ostream& operator<<(std::ostream& stream, const PlanCase& plan) {
  return stream << plan.cached.size() << " sequences, pages of " << plan.page_size << ", chunks of "
                << plan.buffer_tokens;
}

class PlanPropertyTest : public testing::TestWithParam<PlanCase> {};

TEST_P(PlanPropertyTest, places_every_page_of_every_sequence_once_and_in_order) {
  const PlanCase& plan = GetParam();
  const TestCache cache = cache_of(plan.cached, plan.fresh, plan.page_size);
  EXPECT_EQ(
      reference::mla_prefill_num_chunks(cache.row_offsets(), cache.view(), plan.buffer_tokens),
      plan.num_chunks);
  const ChunkMemory chunks = planned(cache, plan.num_chunks + 1, plan.buffer_tokens);
  EXPECT_NO_THROW(require_cover(chunks.view(), cache.row_offsets(), cache.view()));

  // Walk the line token by token, the slow way.
  std::int64_t place = 0;
  for (std::int64_t sequence = 0; sequence < cache.view().batch(); ++sequence) {
    const std::int64_t keys = num_keys(cache.row_offsets(), cache.view(), sequence);
    for (std::int64_t key = 0; key < keys || key % plan.page_size != 0; ++key, ++place) {
      const std::int64_t chunk = place / plan.buffer_tokens;
      const std::int64_t row = place % plan.buffer_tokens;
      const double first = chunks.buffer_row_offsets.at({chunk, sequence});
      EXPECT_LE(first, row);
      EXPECT_LT(row, chunks.buffer_row_offsets.at({chunk, sequence + 1}));
      EXPECT_EQ(chunks.cache_offsets.at({chunk, sequence}) + static_cast<double>(row) - first, key);
    }
  }
  double rows = 0;
  for (const double length : chunks.buffer_lengths.values()) rows += length > 0 ? length : 0;
  EXPECT_EQ(rows, place);
}

INSTANTIATE_TEST_SUITE_P(Batches, PlanPropertyTest,
                         testing::Values(PlanCase{{0}, {1}, 4, 8, 1}, PlanCase{{0}, {8}, 4, 8, 1},
                                         PlanCase{{0}, {9}, 4, 8, 2},
                                         PlanCase{{3, 0, 17, 1}, {5, 0, 2, 30}, 4, 8, 8},
                                         PlanCase{{3, 0, 17, 1}, {5, 0, 2, 30}, 4, 7, 9},
                                         PlanCase{{3, 0, 17, 1}, {5, 0, 2, 30}, 1, 5, 12},
                                         PlanCase{{100, 50}, {1, 1}, 16, 1000, 1}));

TEST(RequireCoverTest, names_the_sequence_that_is_not_covered) {
  const TestCache cache = cache_of({0, 3}, {4, 9}, 4);
  const ChunkMemory chunks = planned(cache, 2, 8);
  chunks.buffer_lengths.view().store({1}, -1);  // the second half of sequence 1 is lost
  try {
    require_cover(chunks.view(), cache.row_offsets(), cache.view());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.argument(), "chunks");
    EXPECT_EQ(error.expected(), "a plan that holds the 12 keys of sequence 1 once");
    EXPECT_EQ(error.actual(), "one that holds the first 4");
  }
}

TEST(RequireCoverTest, refuses_keys_that_are_held_twice) {
  const TestCache cache = cache_of({0}, {8}, 4);
  const ChunkMemory chunks = planned(cache, 3, 4);
  EXPECT_NO_THROW(require_cover(chunks.view(), cache.row_offsets(), cache.view()));
  chunks.buffer_lengths.view().store({2}, 4);
  chunks.buffer_row_offsets.view().store({2, 1}, 4);
  chunks.cache_offsets.view().store({2, 0}, 4);  // as chunk 1
  EXPECT_THROW(require_cover(chunks.view(), cache.row_offsets(), cache.view()), Error);
}

TEST(RequireCoverTest, ignores_sequences_without_new_tokens) {
  const TestCache cache = cache_of({8, 0}, {0, 4}, 4);
  const ChunkMemory chunks = planned(cache, 2, 8);
  chunks.buffer_lengths.view().store({0}, -1);  // held sequence 0 only
  EXPECT_NO_THROW(require_cover(chunks.view(), cache.row_offsets(), cache.view()));
}

TEST(ChunkKeysTest, are_cut_at_the_true_length) {
  const TestCache cache = cache_of({0}, {6}, 4);
  const ChunkMemory chunks = planned(cache, 3, 4);
  const KeyRange second = chunk_keys(chunks.view(), 1, 0, 6);
  EXPECT_EQ(second.first, 4);
  EXPECT_EQ(second.last, 6);
  const KeyRange unused = chunk_keys(chunks.view(), 2, 0, 6);
  EXPECT_EQ(unused.first, unused.last);
}

}  // namespace
}  // namespace quire::reference
