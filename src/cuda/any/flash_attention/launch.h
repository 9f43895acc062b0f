// SPDX-License-Identifier: Apache-2.0
// flash_attention for every valid problem on a GPU: any dtype, width, row format, page size and mask,
// on fp32 multiply-adds. What the fast kernels refuse comes here. Starts kernels on the context's
// stream, allocates nothing and never waits.
#pragma once

#include <string>

#include "core/kernel.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::any::flash_attention {

// Empty, or why not: tensors elsewhere, or a mask of more joins than a launch can carry.
std::string refuse_general(const FlashAttentionProblem& problem);
void flash_attention_general(const FlashAttentionArgs& args, const Context& context);

// A kernel over a paged cache, this one or another, as it takes K and V of a ragged batch (common/paging/attention_views.h): the lengths
// that it reads are made in front of it. Other problems get the kernel as it is.
KernelPtr<FlashAttentionArgs> with_ragged_lengths(const FlashAttentionProblem& problem,
                                                  KernelPtr<FlashAttentionArgs> kernel);

}  // namespace quire::cuda::any::flash_attention
