// SPDX-License-Identifier: Apache-2.0
#include "reference/copy_pages.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;

constexpr std::int64_t kPages = 5;

// Every number of blocks names its page and place: page · 100 + place.
struct Pool {
  Pool() {
    for (std::int64_t i = 0; i < blocks.view().numel(); ++i) {
      blocks.view().as<float>()[i] = static_cast<float>(100 * (i / 16) + i % 16);
    }
    for (std::int64_t i = 0; i < scales.view().numel(); ++i) {
      scales.view().as<float>()[i] = static_cast<float>(100 * (i / 8) + i % 8);
    }
  }
  CopyPagesArgs args(const HostTensor& pairs) const {
    CopyPagesArgs args;
    args.cache.blocks = blocks.view();
    args.cache.scales = scales.view();
    args.pairs = pairs.view();
    return args;
  }
  // The page that every number of a page says it is of, or -1.
  std::int64_t origin(const HostTensor& tensor, std::int64_t page) const {
    const std::int64_t size = tensor.view().numel() / kPages;
    const auto* numbers = tensor.view().as<const float>() + page * size;
    for (std::int64_t i = 0; i < size; ++i) {
      if (static_cast<std::int64_t>(numbers[i]) % 100 != i) return -1;
      if (static_cast<std::int64_t>(numbers[i]) / 100 !=
          static_cast<std::int64_t>(numbers[0]) / 100) {
        return -1;
      }
    }
    return static_cast<std::int64_t>(numbers[0]) / 100;
  }

  HostTensor blocks{DType::f32, {kPages, 2, 2, 2, 1, 2}};
  HostTensor scales{DType::f32, {kPages, 2, 2, 2, 1, 1}};
};

TEST(CopyPages, TargetsBecomeTheirSources) {
  const Pool pool;
  const HostTensor pairs = HostTensor::of(DType::u32, {2, 2}, {3, 0, 1, 4});
  reference::copy_pages(pool.args(pairs));
  const std::vector<std::int64_t> expected{3, 1, 2, 3, 1};
  for (std::int64_t page = 0; page < kPages; ++page) {
    EXPECT_EQ(pool.origin(pool.blocks, page), expected[static_cast<std::size_t>(page)]);
    EXPECT_EQ(pool.origin(pool.scales, page), expected[static_cast<std::size_t>(page)]);
  }
}

TEST(CopyPages, APairWithoutAPageIsDropped) {
  const Pool pool;
  const HostTensor pairs = HostTensor::of(DType::u32, {3, 2}, {5, 0, 1, 4294967295.0, 2, 3});
  reference::copy_pages(pool.args(pairs));
  const std::vector<std::int64_t> expected{0, 1, 2, 2, 4};
  for (std::int64_t page = 0; page < kPages; ++page) {
    EXPECT_EQ(pool.origin(pool.blocks, page), expected[static_cast<std::size_t>(page)]);
  }
}

}  // namespace
}  // namespace quire::reference
