// SPDX-License-Identifier: Apache-2.0
// A thread owns eight columns of an output row (one, where vectors do not fit) and walks over the
// states; the few LSEs of its row come out of the cache.
#include "cuda/any/companions.h"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::merge_states {
namespace {

constexpr int kThreads = 256;
constexpr int kStates = 4;  // in flight at once

struct MergeParams {
  const std::byte* states;  // [num_states, tokens, heads, value_dim]
  std::int64_t state_strides[3];
  DType dtype;
  const float* lses;  // [num_states, tokens, heads]
  std::int64_t lses_strides[3];
  std::byte* out;  // [tokens, heads, value_dim]
  std::int64_t out_strides[2];
  DType out_dtype;
  float* lse;  // [tokens, heads], or null
  std::int64_t lse_strides[2];
  std::int64_t num_states;
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t value_dim;
};

struct OutputPlace {
  std::int64_t token;
  std::int64_t head;
  std::int64_t vector;  // of the row, or column
};

__device__ OutputPlace place_of(std::int64_t index, const Divisor& row_vectors,
                                const Divisor& heads) {
  const std::int64_t row = row_vectors.quotient_of(index);
  const std::int64_t token = heads.quotient_of(row);
  return {token, row - token * heads.value(), index - row * row_vectors.value()};
}

__device__ const float* first_lse(const MergeParams& params, const OutputPlace& place) {
  return params.lses + place.token * params.lses_strides[1] + place.head * params.lses_strides[2];
}

__device__ void store_lse(const MergeParams& params, const OutputPlace& place, float value) {
  if (params.lse == nullptr || place.vector != 0) return;
  params.lse[place.token * params.lse_strides[0] + place.head * params.lse_strides[1]] = value;
}

// Sums over the states so far, relative to the highest LSE among them.
struct Partial {
  float sums[kVec8] = {};
  float weights = 0.0f;
  float highest = -INFINITY;

  __device__ void raise(float to) {
    if (!(to > highest)) return;
    const float factor = expf(highest - to);  // 0 for the first
#pragma unroll
    for (int i = 0; i < kVec8; ++i) sums[i] *= factor;
    weights *= factor;
    highest = to;
  }
  __device__ void add(const float (&values)[kVec8], float lse) {
    if (lse == -INFINITY) return;  // whatever the state holds
    const float weight = expf(lse - highest);
    weights += weight;
#pragma unroll
    for (int i = 0; i < kVec8; ++i) sums[i] = fmaf(weight, values[i], sums[i]);
  }
};

template <DType kType>
__global__ void __launch_bounds__(kThreads)
    merge_vectors(const __grid_constant__ MergeParams params, Divisor row_vectors, Divisor heads) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= params.tokens * heads.value() * row_vectors.value()) return;
  const OutputPlace place = place_of(index, row_vectors, heads);
  const float* lses = first_lse(params, place);
  const std::byte* states =
      params.states + (place.token * params.state_strides[1] +
                       place.head * params.state_strides[2] + place.vector * kVec8) *
                          (bits(kType) / 8);
  const std::int64_t state_bytes = params.state_strides[0] * (bits(kType) / 8);
  Partial partial;
  for (std::int64_t first = 0; first < params.num_states; first += kStates) {
    typename Vec8<kType>::Raw raw[kStates];
    float lse[kStates];
    float highest = -INFINITY;
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      const bool exists = first + s < params.num_states;
      lse[s] = -INFINITY;
      if (!exists) continue;
      raw[s] = Vec8<kType>::load(states + (first + s) * state_bytes);
      lse[s] = lses[(first + s) * params.lses_strides[0]];
    }
#pragma unroll
    for (int s = 0; s < kStates; ++s) highest = fmaxf(highest, lse[s]);
    partial.raise(highest);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      if (lse[s] == -INFINITY) continue;
      float values[kVec8];
      Vec8<kType>::decode(raw[s], values);
      partial.add(values, lse[s]);
    }
  }
  const bool is_empty = partial.highest == -INFINITY && partial.weights == 0.0f;
  const float factor = is_empty ? 0.0f : 1.0f / partial.weights;
#pragma unroll
  for (int i = 0; i < kVec8; ++i) partial.sums[i] *= factor;
  const std::int64_t at = place.token * params.out_strides[0] + place.head * params.out_strides[1] +
                          place.vector * kVec8;
  store_vec8(params.out + at * (bits(params.out_dtype) / 8), params.out_dtype, partial.sums);
  store_lse(params, place, is_empty ? -INFINITY : partial.highest + logf(partial.weights));
}

// In double, a thread per column.
__global__ void __launch_bounds__(kThreads)
    merge_general(const __grid_constant__ MergeParams params, Divisor columns, Divisor heads) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= params.tokens * heads.value() * columns.value()) return;
  const OutputPlace place = place_of(index, columns, heads);
  const float* lses = first_lse(params, place);
  float highest_lse = -INFINITY;
  for (std::int64_t s = 0; s < params.num_states; ++s) {
    highest_lse = fmaxf(highest_lse, lses[s * params.lses_strides[0]]);
  }
  const double highest = highest_lse;
  double sum = 0.0;
  double weights = 0.0;
  for (std::int64_t s = 0; s < params.num_states; ++s) {
    const float lse = lses[s * params.lses_strides[0]];
    if (lse == -INFINITY) continue;
    const double weight = exp(static_cast<double>(lse) - highest);
    weights += weight;
    sum +=
        weight * load_number(params.states, params.dtype,
                             s * params.state_strides[0] + place.token * params.state_strides[1] +
                                 place.head * params.state_strides[2] + place.vector);
  }
  const bool is_empty = highest == -INFINITY && weights == 0.0;
  store_number(
      params.out, params.out_dtype,
      place.token * params.out_strides[0] + place.head * params.out_strides[1] + place.vector,
      is_empty ? 0.0 : sum / weights);
  store_lse(params, place, is_empty ? -INFINITY : static_cast<float>(highest + log(weights)));
}

bool is_aligned(const TensorView& tensor) {
  const std::int64_t alignment = vec8_alignment(tensor.dtype);
  bool aligned = reinterpret_cast<std::uintptr_t>(tensor.data) % alignment == 0;
  for (int dim = 0; dim + 1 < tensor.rank; ++dim) {
    aligned = aligned && bytes_for(tensor.dtype, tensor.strides[dim]) % alignment == 0;
  }
  return aligned && tensor.shape[tensor.rank - 1] % kVec8 == 0;
}

MergeParams params_of(const MergeStatesArgs& args) {
  const TensorView& states = args.states;
  return {.states = states.as<const std::byte>(),
          .state_strides = {states.strides[0], states.strides[1], states.strides[2]},
          .dtype = states.dtype,
          .lses = args.lses.as<const float>(),
          .lses_strides = {args.lses.strides[0], args.lses.strides[1], args.lses.strides[2]},
          .out = args.out.as<std::byte>(),
          .out_strides = {args.out.strides[0], args.out.strides[1]},
          .out_dtype = args.out.dtype,
          .lse = args.lse.has_value() ? args.lse->as<float>() : nullptr,
          .lse_strides = {args.lse.has_value() ? args.lse->strides[0] : 0,
                          args.lse.has_value() ? args.lse->strides[1] : 0},
          .num_states = states.shape[0],
          .tokens = states.shape[1],
          .heads = states.shape[2],
          .value_dim = states.shape[3]};
}

}  // namespace

void merge_states(const MergeStatesArgs& args, const Context& context) {
  const DeviceScope scope(args.states.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const MergeParams params = params_of(args);
  const std::int64_t rows = params.tokens * params.heads;
  if (rows * params.value_dim == 0) return;
  const bool has_vectors = is_aligned(args.states) && is_aligned(args.out);
  const Divisor vectors(static_cast<unsigned>(params.value_dim / (has_vectors ? kVec8 : 1)));
  const Divisor heads(static_cast<unsigned>(params.heads));
  const LaunchShape shape{.grid = dim3(num_blocks(rows * vectors.value(), kThreads)),
                          .block = dim3(kThreads)};
  if (!has_vectors) return launch(merge_general, shape, stream, params, vectors, heads);
  with_vec8_type(params.dtype, [&]<DType kType>() {
    launch(merge_vectors<kType>, shape, stream, params, vectors, heads);
  });
}

}  // namespace quire::cuda::any::merge_states
