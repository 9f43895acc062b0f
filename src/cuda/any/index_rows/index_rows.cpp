// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "cuda/any/companions.h"
#include "cuda/any/index_rows/params.h"
#include "cuda/common/runtime/alignment.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/index_rows/launch.h"

namespace quire::cuda::any::index_rows {
namespace {

constexpr std::int64_t kCodeBytes = 8;  // eight codes
static_assert(kMostColumns * sizeof(float) <= kSharedBytesOfEveryGpu);

IndexRowVector vector_of(const std::optional<TensorView>& tensor) {
  if (!tensor) return {};
  return {.data = tensor->as<const std::byte>(), .dtype = tensor->dtype};
}

// The fields that both ops have, by their names; x [tokens, (heads,) columns].
template <typename Args> IndexRowParams params_of(const Args& args, const TensorView& x) {
  const std::int64_t heads = x.rank == 3 ? x.shape[1] : 1;
  const auto columns = static_cast<int>(x.shape[x.rank - 1]);
  IndexRowParams params{
      .x = x.as<const std::byte>(),
      .x_dtype = x.dtype,
      .token_bytes = bytes_for(x.dtype, x.strides[0]),
      .head_bytes = x.rank == 3 ? bytes_for(x.dtype, x.strides[1]) : 0,
      .tokens = x.shape[0],
      .heads = Divisor(static_cast<std::uint32_t>(heads)),
      .columns = columns,
      .row_offsets = args.row_offsets.template as<const std::uint32_t>(),
      .cache_lengths = args.cache.cache_lengths.template as<const std::uint32_t>(),
      .batch = args.cache.batch(),
      .norm_weight = {},
      .norm_bias = {},
      .epsilon = 0.0f,
      .freqs = nullptr,
      .freqs_dtype = DType::f32,
      .freqs_stride = 0,
      .freqs_size = 0,
      .max_pos = 0,
      .rope_dim = 0,
      .interleaved = args.interleaved,
      .hadamard = args.hadamard,
      .hadamard_factor = 1.0f,
      .rounding = args.scale_rounding};
  if (args.hadamard) params.hadamard_factor = static_cast<float>(1.0 / std::sqrt(columns));
  if (args.freqs_cis) {
    params.freqs = args.freqs_cis->template as<const std::byte>();
    params.freqs_dtype = args.freqs_cis->dtype;
    params.freqs_stride = args.freqs_cis->strides[0];
    params.freqs_size = bits(params.freqs_dtype) / 8;
    params.max_pos = args.freqs_cis->shape[0];
    params.rope_dim = static_cast<int>(args.freqs_cis->shape[1]);
  }
  return params;
}

bool takes_rope(const IndexRowParams& params) {
  if (params.freqs == nullptr) return true;
  return 2 * params.rope_dim == params.columns &&
         are_aligned(kVectorBytes, params.freqs, params.freqs_stride * params.freqs_size);
}

bool stands_in(const KeyTarget& target, std::int64_t vector_bytes) {
  const KvLayerView& view = target.view;
  return (target.scale_offset < 0 || are_aligned(4, target.scale_offset)) &&
         are_aligned(vector_bytes, view.data, target.codes_offset, view.page_stride_bytes,
                     view.token_stride_bytes);
}

IndexRowLaunch launch_on(Device device, const Context& context) {
  return {.stream = static_cast<cudaStream_t>(context.stream), .num_sms = num_sms(device.index)};
}

}  // namespace

bool takes_vectors(const IndexRowParams& params) {
  return (params.columns == 64 || params.columns == 128) && takes_rope(params) &&
         are_aligned(kVectorBytes, params.x, params.token_bytes, params.head_bytes);
}

bool takes_vectors(const KeyTarget& target) {
  return stands_in(target, kCodeBytes);
}

bool takes_runs(const KeyTarget& target) {
  return stands_in(target, kVectorBytes);
}

bool takes_vectors(const QueryTarget& target) {
  return are_aligned(kCodeBytes, target.out, target.out_token_bytes, target.out_head_bytes);
}

bool takes_stages(const IndexRowParams& params, const KeyTarget& target, ComputeCapability found) {
  return runs_sm90(found) && takes_vectors(params) && takes_vectors(target);
}

void store_index_keys(const StoreIndexKeysArgs& args, const Context& context) {
  const DeviceScope scope(args.x.device);
  IndexRowParams params = params_of(args, args.x);
  params.norm_weight = vector_of(args.norm_weight);
  params.norm_bias = vector_of(args.norm_bias);
  params.epsilon = static_cast<float>(args.epsilon);
  const KvLayerView view = args.cache.key(args.layer);
  const RowPart& part = view.row_format.parts[0];
  const bool in_row = part.scale_source == ScaleSource::in_row;
  const KeyTarget target{.view = view,
                         .codes_offset = part.offset_bytes,
                         .scale_offset = in_row ? part.scale_offset_bytes : -1,
                         .page_size = Divisor(static_cast<unsigned>(view.page_size))};
  if (params.tokens == 0 || params.batch == 0) return;
  const IndexRowLaunch launched = launch_on(args.x.device, context);
  if (takes_stages(params, target, compute_capability(args.x.device.index))) {
    return sm90::index_rows::launch_keys(params, target, launched);
  }
  launch_general(params, target, launched.stream);
}

void quantize_index_queries(const QuantizeIndexQueriesArgs& args, const Context& context) {
  const DeviceScope scope(args.q.device);
  QueryTarget target{.out = args.out.as<std::byte>(),
                     .out_token_bytes = args.out.strides[0],
                     .out_head_bytes = args.out.strides[1],
                     .q_scale = args.q_scale.as<float>(),
                     .scale_token_stride = args.q_scale.strides[0],
                     .scale_head_stride = args.q_scale.strides[1],
                     .weights = nullptr,
                     .weights_dtype = DType::f32,
                     .weights_token_stride = 0,
                     .weights_head_stride = 0,
                     .factor = static_cast<float>(args.factor)};
  if (args.weights) {
    target.weights = args.weights->as<const std::byte>();
    target.weights_dtype = args.weights->dtype;
    target.weights_token_stride = args.weights->strides[0];
    target.weights_head_stride = args.weights->strides[1];
  }
  const IndexRowParams params = params_of(args, args.q);
  if (params.tokens == 0 || params.batch == 0) return;
  const IndexRowLaunch launched = launch_on(args.q.device, context);
  if (takes_vectors(params) && takes_vectors(target)) {
    return launch_vectors(params, target, launched);
  }
  launch_general(params, target, launched.stream);
}

}  // namespace quire::cuda::any::index_rows
