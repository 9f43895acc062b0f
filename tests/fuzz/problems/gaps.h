// SPDX-License-Identifier: Apache-2.0
// A problem on views with gaps: rows further apart than they are long, first elements off every boundary. The op works
// on copies of the tensors laid out so; after each run their elements are brought back, so that the checker sees the
// tensors it knows, and what lies in the gaps must be what it was.
#pragma once

#include <memory>
#include <vector>

#include "fuzz/problems/draw.h"
#include "tools/device/runner.h"

namespace quire::test {

struct GappedTensor {
  TensorView dense;  // the problem's own
  TensorView gapped;
};

// Some of the tensors that the op takes with gaps; those it refuses stay as they are. The problem's calls and its
// memory are changed; edits come before.
std::vector<GappedTensor> add_gaps(Draw& draw, tools::Built& built);

// The runner, and after each of its runs the elements of the gapped tensors in the dense ones.
std::unique_ptr<tools::Runner> bring_back(std::unique_ptr<tools::Runner> runner,
                                          std::vector<GappedTensor> tensors);

}  // namespace quire::test
