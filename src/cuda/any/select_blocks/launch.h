// SPDX-License-Identifier: Apache-2.0
// select_blocks for every valid problem on a GPU: scores in fp32, the best of a block by integer maxima, a radix select.
// Starts its kernels on the context's stream, allocates nothing and never waits.
#pragma once

#include "core/kernel.h"
#include "quire/ops/select_blocks.h"

namespace quire::cuda::any::select_blocks {

// Scratch: the ranks of all blocks that a row of the page table can hold, of as many tokens as fit.
KernelPtr<SelectBlocksArgs> prepare_general(const SelectBlocksProblem& problem);

}  // namespace quire::cuda::any::select_blocks
