// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/mla_prefill/launch.h"
#include "cuda/any/mla_prefill/params.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"

namespace quire::cuda::any::mla_prefill {

ChunkTable chunk_table(const MlaPrefillChunks& chunks) {
  return {.buffer_row_offsets = chunks.buffer_row_offsets.as<std::uint32_t>(),
          .buffer_chunk_stride = chunks.buffer_row_offsets.strides[0],
          .buffer_sequence_stride = chunks.buffer_row_offsets.strides[1],
          .cache_offsets = chunks.cache_offsets.as<std::uint32_t>(),
          .cache_chunk_stride = chunks.cache_offsets.strides[0],
          .cache_sequence_stride = chunks.cache_offsets.strides[1],
          .buffer_lengths = chunks.buffer_lengths.as<std::int32_t>(),
          .lengths_stride = chunks.buffer_lengths.strides[0],
          .max_chunks = chunks.buffer_lengths.shape[0],
          .buffer_tokens = chunks.buffer_tokens,
          .decode_tokens = chunks.decode_tokens};
}

std::string refuse_plan(const MlaPrefillPlanProblem& problem) {
  return refuse_hopper(problem.device);
}

void mla_prefill_plan(const MlaPrefillPlanArgs& args, const Context& context) {
  const DeviceScope scope(args.row_offsets.device);
  const KvLayerView view = args.cache.key(args.layer);
  launch_prefill_plan({.chunks = chunk_table(args.chunks),
                       .row_offsets = args.row_offsets.as<const std::uint32_t>(),
                       .cache_lengths = view.cache_lengths,
                       .batch = view.batch,
                       .page_size = view.page_size},
                      static_cast<cudaStream_t>(context.stream));
}

}  // namespace quire::cuda::any::mla_prefill
