// SPDX-License-Identifier: Apache-2.0
#include "core/page_runs.h"

#include <algorithm>
#include <vector>

namespace quire {

std::int64_t PageRuns::num_runs() const {
  std::int64_t product = 1;
  for (int i = 0; i < num_loops; ++i) product *= loops[static_cast<std::size_t>(i)].count;
  return product;
}

std::int64_t PageRuns::offset_bytes(std::int64_t run) const {
  std::int64_t offset = 0;
  for (int i = 0; i < num_loops; ++i) {
    const Loop& loop = loops[static_cast<std::size_t>(i)];
    offset += run % loop.count * loop.stride_bytes;
    run /= loop.count;
  }
  return offset;
}

PageRuns page_runs(const TensorView& pages) {
  std::vector<PageRuns::Loop> dims;
  bool is_empty = false;
  for (int dim = 1; dim < pages.rank; ++dim) {
    is_empty = is_empty || pages.shape[dim] == 0;
    if (pages.shape[dim] <= 1 || pages.strides[dim] == 0) continue;
    dims.push_back({pages.shape[dim], bytes_for(pages.dtype, pages.strides[dim])});
  }
  std::sort(dims.begin(), dims.end(),
            [](const auto& a, const auto& b) { return a.stride_bytes < b.stride_bytes; });

  PageRuns runs{.page_stride_bytes = bytes_for(pages.dtype, pages.strides[0]),
                .run_bytes = is_empty ? 0 : bytes_for(pages.dtype, 1)};
  for (const PageRuns::Loop& dim : dims) {
    if (runs.num_loops == 0 && dim.stride_bytes == runs.run_bytes) {
      runs.run_bytes *= dim.count;
      continue;
    }
    if (runs.num_loops > 0) {
      PageRuns::Loop& inner = runs.loops[static_cast<std::size_t>(runs.num_loops - 1)];
      if (dim.stride_bytes == inner.stride_bytes * inner.count) {
        inner.count *= dim.count;
        continue;
      }
    }
    runs.loops[static_cast<std::size_t>(runs.num_loops++)] = dim;
  }
  return runs;
}

}  // namespace quire
