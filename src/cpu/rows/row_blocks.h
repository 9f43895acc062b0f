// SPDX-License-Identifier: Apache-2.0
// How the memory-bound ops share their rows among threads: blocks of rows, large enough to hide
// what handing them out costs, small enough to stay in the caches while they are worked on.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/work_estimate.h"
#include "quire/context.h"

namespace quire::cpu {

struct RowBlock {
  std::int64_t first;
  std::int64_t last;
};

inline constexpr std::int64_t kMostRowsInBlock = 64;

// body(RowBlock block, int worker) for blocks that cover [0, num_rows). bytes_per_row: what a row
// reads and writes.
template <typename Body>
void for_row_blocks(std::int64_t num_rows, std::int64_t bytes_per_row, const Context& context,
                    Body&& body) {
  constexpr std::int64_t kBlockBytes = 64 * 1024;
  const std::int64_t wanted = kBlockBytes / std::max<std::int64_t>(bytes_per_row, 1);
  const std::int64_t size = std::clamp<std::int64_t>(wanted, 1, kMostRowsInBlock);
  const std::int64_t num_blocks = (num_rows + size - 1) / size;
  const double bytes = static_cast<double>(num_rows) * static_cast<double>(bytes_per_row);
  const Workers workers = Workers(context).for_nanoseconds(nanoseconds_of_bytes(bytes));
  parallel_for(num_blocks, workers, [&](std::int64_t item, int worker) {
    const std::int64_t first = item * size;
    body(RowBlock{first, std::min(first + size, num_rows)}, worker);
  });
}

// Memory of each worker of one call, on cache lines of its own.
class WorkerScratch {
 public:
  WorkerScratch(std::int64_t bytes_per_worker, const Context& context)
      : stride_((bytes_per_worker + kLine - 1) / kLine * kLine) {
    memory_ = thread_scratch(stride_ * Workers(context).count);
  }

  std::byte* of(int worker) const { return memory_ + worker * stride_; }

 private:
  static constexpr std::int64_t kLine = 128;  // two lines: prefetchers fetch them in pairs

  std::int64_t stride_;
  std::byte* memory_;
};

}  // namespace quire::cpu
