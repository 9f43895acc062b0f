// SPDX-License-Identifier: Apache-2.0
#include "cpu/index_rows/index_rows.h"

#include <optional>
#include <vector>

#include "cpu/index_rows/kernels.h"
#include "cpu/rows/new_tokens.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {
namespace {

// The fields that both ops have, by their names; x [tokens, heads, columns].
template <typename Args> IndexRowJob rows_of(const Args& args, const TensorView& x) {
  IndexRowJob job{};
  job.x = x.template as<const std::byte>();
  job.dtype = x.dtype;
  job.token_stride = bytes_for(x.dtype, x.strides[0]);
  job.head_stride = x.rank == 3 ? bytes_for(x.dtype, x.strides[1]) : 0;
  job.num_heads = x.rank == 3 ? x.shape[1] : 1;
  job.columns = x.shape[x.rank - 1];
  if (args.freqs_cis) {
    job.freqs_cis = args.freqs_cis->template as<const std::byte>();
    job.freqs_dtype = args.freqs_cis->dtype;
    job.freqs_stride = bytes_for(job.freqs_dtype, args.freqs_cis->strides[0]);
    job.rope_dim = args.freqs_cis->shape[1];
  }
  job.interleaved = args.interleaved;
  job.hadamard = args.hadamard;
  job.power_of_two = args.scale_rounding == ScaleRounding::power_of_two;
  return job;
}

std::vector<float> widen(const std::optional<TensorView>& tensor, const IndexRowKernels& kernels) {
  if (!tensor) return {};
  std::vector<float> wide(static_cast<std::size_t>(tensor->shape[0]));
  kernels.widen(tensor->dtype, tensor->as<const std::byte>(), tensor->shape[0], wide.data());
  return wide;
}

}  // namespace

void store_index_keys(const StoreIndexKeysArgs& args, const Context& context, Target target) {
  const IndexRowKernels& kernels = index_row_kernels(target);
  const std::vector<float> weight = widen(args.norm_weight, kernels);
  const std::vector<float> bias = widen(args.norm_bias, kernels);
  const PagedKvOperand keys(args.cache.key(args.layer));
  const RowFormat format = keys.layout().format;
  const RowPart& part = format.parts[0];
  StoreIndexKeysJob job{
      .rows = rows_of(args, args.x),
      .codes_offset = part.offset_bytes,
      .scale_offset = part.scale_source == ScaleSource::in_row ? part.scale_offset_bytes : -1};
  job.rows.norm_weight = weight.empty() ? nullptr : weight.data();
  job.rows.norm_bias = bias.empty() ? nullptr : bias.data();
  job.rows.epsilon = args.epsilon;
  const WorkerScratch scratch(kernels.scratch_bytes(job.rows), context);
  const std::int64_t token_bytes = bytes_for(args.x.dtype, job.rows.columns) + job.rows.columns;
  for_token_blocks(NewTokens(args.row_offsets, keys), token_bytes, context,
                   [&](std::span<const TokenPlace> places, int worker) {
                     kernels.store(job, places.data(), static_cast<std::int64_t>(places.size()),
                                   scratch.of(worker));
                   });
}

void quantize_index_queries(const QuantizeIndexQueriesArgs& args, const Context& context,
                            Target target) {
  const IndexRowKernels& kernels = index_row_kernels(target);
  QuantizeIndexQueriesJob job{.rows = rows_of(args, args.q),
                              .out = args.out.as<std::byte>(),
                              .out_token_stride = args.out.strides[0],
                              .out_head_stride = args.out.strides[1],
                              .weights = nullptr,
                              .weights_dtype = DType::f32,
                              .weights_token_stride = 0,
                              .weights_head_stride = 0,
                              .factor = args.factor,
                              .q_scale = args.q_scale.as<float>(),
                              .scale_token_stride = args.q_scale.strides[0],
                              .scale_head_stride = args.q_scale.strides[1]};
  if (args.weights) {
    job.weights = args.weights->as<const std::byte>();
    job.weights_dtype = args.weights->dtype;
    job.weights_token_stride = bytes_for(args.weights->dtype, args.weights->strides[0]);
    job.weights_head_stride = bytes_for(args.weights->dtype, args.weights->strides[1]);
  }
  const WorkerScratch scratch(kernels.scratch_bytes(job.rows), context);
  const std::int64_t row_bytes = bytes_for(args.q.dtype, job.rows.columns) + job.rows.columns;
  for_token_blocks(NewTokens(args.row_offsets, args.cache), job.rows.num_heads * row_bytes, context,
                   [&](std::span<const TokenPlace> places, int worker) {
                     kernels.quantize(job, places.data(), static_cast<std::int64_t>(places.size()),
                                      scratch.of(worker));
                   });
}

}  // namespace quire::cpu
