// SPDX-License-Identifier: Apache-2.0
#include "cpu/copy_pages/copy_pages.h"

#include <algorithm>
#include <cstring>

#include "core/page_runs.h"
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/work_estimate.h"

namespace quire::cpu {
namespace {

// A share of one thread: long enough for memcpy to stream, short enough to spread one page.
constexpr std::int64_t kPieceBytes = 256 * 1024;

struct PagePair {
  std::int64_t source;
  std::int64_t target;
};

PagePair pair_at(const TensorView& pairs, std::int64_t pair) {
  const auto* ids = pairs.as<const std::uint32_t>();
  return {ids[pairs.offset({pair, 0})], ids[pairs.offset({pair, 1})]};
}

// pages: [num_pages, …]; num_pages of the cache, which the scales may exceed.
void copy(const TensorView& pages, const TensorView& pairs, std::int64_t num_pages,
          const Context& context) {
  if (pages.strides[0] == 0) return;  // what all pages share needs no copy
  const PageRuns runs = page_runs(pages);
  const std::int64_t num_runs = runs.num_runs();
  const std::int64_t pieces = (runs.run_bytes + kPieceBytes - 1) / kPieceBytes;
  // Short runs go together.
  const std::int64_t runs_per_task = std::clamp<std::int64_t>(
      kPieceBytes / std::max<std::int64_t>(runs.run_bytes, 1), 1, num_runs);
  const std::int64_t tasks_per_page = (num_runs + runs_per_task - 1) / runs_per_task * pieces;
  auto* data = pages.as<std::byte>();
  const auto page_bytes = static_cast<double>(num_runs) * static_cast<double>(runs.run_bytes);
  const double bytes = 2.0 * static_cast<double>(pairs.shape[0]) * page_bytes;
  const Workers workers = Workers(context).for_nanoseconds(nanoseconds_of_bytes(bytes));
  parallel_for(pairs.shape[0] * tasks_per_page, workers, [&](std::int64_t task, int) {
    const auto [source, target] = pair_at(pairs, task / tasks_per_page);
    if (source >= num_pages || target >= num_pages) return;
    const std::int64_t first_run = task % tasks_per_page / pieces * runs_per_task;
    const std::int64_t first_byte = task % pieces * kPieceBytes;
    const auto bytes = static_cast<std::size_t>(std::min(kPieceBytes, runs.run_bytes - first_byte));
    for (std::int64_t r = first_run; r < std::min(first_run + runs_per_task, num_runs); ++r) {
      std::byte* run = data + runs.offset_bytes(r) + first_byte;
      std::memcpy(run + target * runs.page_stride_bytes, run + source * runs.page_stride_bytes,
                  bytes);
    }
  });
}

}  // namespace

void copy_pages(const CopyPagesArgs& args, const Context& context) {
  copy(args.cache.blocks, args.pairs, args.cache.num_pages(), context);
  if (args.cache.value_blocks) {
    copy(*args.cache.value_blocks, args.pairs, args.cache.num_pages(), context);
  }
  if (args.cache.scales) {
    copy(*args.cache.scales, args.pairs, args.cache.num_pages(), context);
  }
}

}  // namespace quire::cpu
