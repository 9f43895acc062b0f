// SPDX-License-Identifier: Apache-2.0
#include "cpu/merge_states/merge_states.h"

#include "cpu/merge_states/kernels.h"
#include "cpu/rows/row_blocks.h"

namespace quire::cpu {

void merge_states(const MergeStatesArgs& args, const Context& context, Target target) {
  const TensorView& states = args.states;
  const TensorView& out = args.out;
  const bool wants_lse = args.lse.has_value();
  const MergeJob job{.states = states.as<const std::byte>(),
                     .dtype = states.dtype,
                     .state_stride = bytes_for(states.dtype, states.strides[0]),
                     .token_stride = bytes_for(states.dtype, states.strides[1]),
                     .head_stride = bytes_for(states.dtype, states.strides[2]),
                     .lses = args.lses.as<const float>(),
                     .lses_state_stride = args.lses.strides[0],
                     .lses_token_stride = args.lses.strides[1],
                     .lses_head_stride = args.lses.strides[2],
                     .out = out.as<std::byte>(),
                     .out_dtype = out.dtype,
                     .out_token_stride = bytes_for(out.dtype, out.strides[0]),
                     .out_head_stride = bytes_for(out.dtype, out.strides[1]),
                     .lse = wants_lse ? args.lse->as<float>() : nullptr,
                     .lse_token_stride = wants_lse ? args.lse->strides[0] : 0,
                     .lse_head_stride = wants_lse ? args.lse->strides[1] : 0,
                     .num_states = states.shape[0],
                     .num_heads = states.shape[2],
                     .value_dim = states.shape[3]};
  const MergeKernels& kernels = merge_kernels(target);
  const WorkerScratch scratch(kernels.scratch_bytes(job), context);
  const std::int64_t row_bytes = job.num_states * bytes_for(job.dtype, job.value_dim) +
                                 bytes_for(job.out_dtype, job.value_dim);
  for_row_blocks(out.shape[0] * out.shape[1], row_bytes, context, [&](RowBlock block, int worker) {
    kernels.merge(job, block.first, block.last, scratch.of(worker));
  });
}

}  // namespace quire::cpu
