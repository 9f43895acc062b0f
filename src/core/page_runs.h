// SPDX-License-Identifier: Apache-2.0
// A page of a tensor [num_pages, …] with any strides, as equal runs of bytes without a gap: as long
// as the layout allows, in loops as few as it allows. A pool in page order is one run per page.
#pragma once

#include <array>
#include <cstdint>

#include "quire/tensor_view.h"

namespace quire {

struct PageRuns {
  struct Loop {
    std::int64_t count = 1;
    std::int64_t stride_bytes = 0;
  };

  std::int64_t page_stride_bytes = 0;
  std::int64_t run_bytes = 0;
  int num_loops = 0;
  std::array<Loop, kMaxRank> loops{};  // innermost first

  std::int64_t num_runs() const;
  // Of a run, from the start of its page.
  std::int64_t offset_bytes(std::int64_t run) const;
};

// Dimensions of stride 0 (numbers that several elements share) count once.
PageRuns page_runs(const TensorView& pages);

}  // namespace quire
