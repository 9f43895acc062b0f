// SPDX-License-Identifier: Apache-2.0
// mla_indexer for every valid problem on a GPU: any number of heads, depth, page size and top_k.
// Exact: scores in fp32, a radix select over all of them, ties to the lowest position. Starts one
// kernel on the context's stream, two where scores are wanted, allocates nothing and never waits.
#pragma once

#include <cstdint>
#include <string>

#include "core/kernel.h"
#include "quire/ops/mla_indexer.h"

namespace quire::cuda::any::mla_indexer {

// The scores of as many rows as are in work at a time, each as long as the page table can hold:
// never those of all tokens.
KernelPtr<MlaIndexerArgs> prepare_general(const MlaIndexerProblem& problem);
// The scores of the positions in out, where they are wanted: a kernel behind the one that wrote them. A score's bits do
// not depend on the kernel that chose the position, nor on the batch.
void score_positions(const MlaIndexerArgs& args, const Context& context);

}  // namespace quire::cuda::any::mla_indexer
