// SPDX-License-Identifier: Apache-2.0
// Scans of a batch's tables, against loops that take one number after another.
#include "ops/batch_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace quire::ops {
namespace {

constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();

struct Batch {
  std::vector<std::uint32_t> offsets;  // one more than lengths
  std::vector<std::uint32_t> lengths;
};

void expect_right(const Batch& batch) {
  const auto size = static_cast<std::int64_t>(batch.lengths.size());
  BatchScan wanted;
  for (std::size_t b = 0; b < batch.lengths.size(); ++b) {
    const std::int64_t added = std::int64_t{batch.offsets[b + 1]} - batch.offsets[b];
    const std::int64_t keys = added + batch.lengths[b];
    wanted.is_monotone &= added >= 0;
    wanted.max_new_tokens = std::max(wanted.max_new_tokens, added);
    wanted.max_keys = std::max(wanted.max_keys, keys);
    wanted.total_keys += keys;
    if (added > 0) wanted.end_position = std::max(wanted.end_position, keys);
  }
  const BatchScan scan = scan_batch(batch.offsets.data(), batch.lengths.data(), size);
  ASSERT_EQ(scan.is_monotone, wanted.is_monotone);
  if (!wanted.is_monotone) return;
  EXPECT_EQ(scan.max_new_tokens, wanted.max_new_tokens);
  EXPECT_EQ(scan.max_keys, wanted.max_keys);
  EXPECT_EQ(scan.total_keys, wanted.total_keys);
  EXPECT_EQ(scan.end_position, wanted.end_position);
}

Batch even_batch(std::size_t size, std::uint32_t step, std::uint32_t most, std::mt19937& random) {
  Batch batch{.offsets = {0}, .lengths = {}};
  for (std::size_t b = 0; b < size; ++b) {
    batch.offsets.push_back(batch.offsets.back() + step);
    batch.lengths.push_back(std::uniform_int_distribution<std::uint32_t>(0, most)(random));
  }
  return batch;
}

TEST(BatchScanTest, EvenBatchesOfEverySize) {
  std::mt19937 random(1);
  for (std::size_t size = 0; size < 70; ++size) {
    for (const std::uint32_t step : {0U, 1U, 7U}) {
      SCOPED_TRACE(testing::Message() << size << " sequences, " << step << " new tokens each");
      expect_right(even_batch(size, step, 5000, random));
      expect_right(even_batch(size, step, kMost, random));
    }
  }
}

TEST(BatchScanTest, TheLongestMayStandAnywhere) {
  std::mt19937 random(2);
  for (std::size_t place = 0; place < 37; ++place) {
    Batch batch = even_batch(37, 1, 100, random);
    for (const std::uint32_t length : {101U, 0x7FFFFFFFU, 0x80000000U, kMost}) {
      batch.lengths[place] = length;
      expect_right(batch);
    }
  }
}

TEST(BatchScanTest, UnevenBatchesAndStepsBackAnywhere) {
  std::mt19937 random(3);
  for (std::size_t place = 0; place < 37; ++place) {
    for (const std::uint32_t change : {0U, 2U, 1000U, 0x80000000U, kMost}) {
      SCOPED_TRACE(testing::Message() << "offset " << place << " changed by " << change);
      Batch batch = even_batch(37, 2, 100, random);
      batch.offsets[place + 1] += change;  // this one and all behind it, or this one alone
      expect_right(batch);
      for (std::size_t b = place + 1; b < 37; ++b) batch.offsets[b + 1] += change;
      expect_right(batch);
    }
  }
}

// Equal steps, but around 2^32: no batch has so many tokens, and the last offset is below the first ones.
TEST(BatchScanTest, StepsThatWrapAreStepsBack) {
  std::mt19937 random(4);
  for (const std::uint32_t step : {0x80000000U, 0xC0000000U, kMost, 0x40000001U}) {
    const Batch batch = even_batch(9, step, 100, random);
    expect_right(batch);
    EXPECT_FALSE(scan_batch(batch.offsets.data(), batch.lengths.data(), 9).is_monotone);
  }
}

TEST(BatchScanTest, PageIdsOnBothSidesOfTheirBound) {
  for (const std::int64_t num_pages :
       {std::int64_t{0}, std::int64_t{6}, std::int64_t{0x7FFFFFFE}, std::int64_t{0x7FFFFFFF},
        std::int64_t{0x80000000}, std::int64_t{kMost} - 2, std::int64_t{kMost} - 1,
        std::int64_t{kMost}}) {
    for (std::size_t count = 0; count < 40; ++count) {
      std::vector<std::uint32_t> ids(count, static_cast<std::uint32_t>(num_pages));
      const auto has_bad = [&] {
        return has_bad_page_id(ids.data(), static_cast<std::int64_t>(count), num_pages);
      };
      EXPECT_FALSE(has_bad()) << num_pages;
      for (std::uint32_t& id : ids) {
        for (const std::uint32_t given : {0U, static_cast<std::uint32_t>(num_pages), kMost}) {
          id = given;
          EXPECT_FALSE(has_bad()) << given << " of " << num_pages;
        }
        for (const std::int64_t given : {num_pages + 1, std::int64_t{kMost} - 1}) {
          if (given <= num_pages || given >= kMost) continue;
          id = static_cast<std::uint32_t>(given);
          EXPECT_TRUE(has_bad()) << given << " of " << num_pages;
        }
        id = 0;
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
