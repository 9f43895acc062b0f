// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/sparse_mla/launch.h"
#include "cuda/any/sparse_mla/params.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"

namespace quire::cuda::any::sparse_mla {
namespace {

ChosenStream chosen_stream(const PagedKVCache& cache, std::int64_t layer, const TensorView& indices,
                           const std::optional<TensorView>& lengths) {
  return {.rows = row_reader(cache.key(layer)),
          .indices = indices.as<const std::int32_t>(),
          .indices_stride = indices.strides[0],
          .slots = indices.shape[1],
          .lengths = lengths.has_value() ? lengths->as<const std::int32_t>() : nullptr};
}

}  // namespace

std::string refuse_general(const SparseMlaProblem& problem) {
  return refuse_unless_sm80(problem.device);
}

void sparse_mla_general(const SparseMlaArgs& args, const Context& context) {
  const DeviceScope scope(args.q.device);
  if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
  SparseAttentionParams params{
      .q = plain_rows(args.q),
      .tokens = args.q.shape[0],
      .heads = static_cast<std::int32_t>(args.q.shape[1]),
      .row_offsets = args.row_offsets.as<const std::uint32_t>(),
      .streams = {chosen_stream(args.cache, args.layer, args.indices, args.topk_lengths), {}},
      .scale = static_cast<float>(args.scale),
      .output = attend_output(args.out, args.lse, args.sinks)};
  if (args.extra.has_value()) {
    params.streams[1] = chosen_stream(args.extra->cache, args.extra->layer, args.extra->indices,
                                      args.extra->lengths);
  }
  launch_sparse_attention(params, static_cast<cudaStream_t>(context.stream));
}

}  // namespace quire::cuda::any::sparse_mla
