// SPDX-License-Identifier: Apache-2.0
// flash_attention for every valid problem on a GPU: any dtype, width, row format, page size and mask,
// on fp32 multiply-adds. What the fast kernels refuse comes here. Starts kernels on the context's
// stream, allocates nothing and never waits.
#pragma once

#include "core/kernel.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::any::flash_attention {

KernelPtr<FlashAttentionArgs> prepare_general(const FlashAttentionProblem& problem);

// A kernel over a paged cache, this one or another, as it takes K and V of a ragged batch (common/paging/attention_views.h): the lengths
// that it reads are made in front of it. Other problems get the kernel as it is.
KernelPtr<FlashAttentionArgs> with_ragged_lengths(const FlashAttentionProblem& problem,
                                                  KernelPtr<FlashAttentionArgs> kernel);

}  // namespace quire::cuda::any::flash_attention
