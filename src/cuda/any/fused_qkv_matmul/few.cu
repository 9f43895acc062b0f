// SPDX-License-Identifier: Apache-2.0
// A block computes 4 columns of Y for 8 tokens. The lanes of its warps lie along K, so a weight row is
// read in whole lines and decoded once; each thread sums its runs for all 32 outputs. The sums of a
// warp meet by exchange, those of the warps in shared memory, in the order of the warps.
#include "cuda/any/fused_qkv_matmul/load_operands.cuh"
#include "cuda/any/fused_qkv_matmul/store_value.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::fused_qkv_matmul {
namespace {

constexpr int kRows = 4;  // of W
constexpr int kTokens = 8;
constexpr int kLanes = 32;
constexpr int kRounds = 5;  // log2
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kLanes;
constexpr int kBlocksPerSm = 3;
constexpr int kStepColumns = kThreads * kRun;
static_assert(kRows * kTokens == kLanes, "a warp's sums end one to a lane");

// The runs of x of a thread's own columns, for all tokens: private to the thread, in shared memory
// because registers are short. Neighbouring threads stand side by side.
struct InputRuns {
  float4 halves[kTokens][2][kThreads];

  __device__ void load(const InputOperand& x, int first_token, int column) {
#pragma unroll 1
    for (int t = 0; t < kTokens && first_token + t < x.rows; ++t) {
      float v[kRun];
      load_input(x, first_token + t, column, v);
      halves[t][0][threadIdx.x] = {v[0], v[1], v[2], v[3]};
      halves[t][1][threadIdx.x] = {v[4], v[5], v[6], v[7]};
    }
  }
  __device__ void take(int token, float (&v)[kRun]) const {
    Vec8<DType::f32>::decode({halves[token][0][threadIdx.x], halves[token][1][threadIdx.x]}, v);
  }
};

template <typename Operands>
__device__ void add_products(const GeneralParams& params, int first_token, int first_row,
                             int column, InputRuns& input, float (&sums)[kLanes]) {
  float weight[kRows][kRun];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    Operands::load_weight(params.weight, first_row + r, column, weight[r]);
  input.load(params.x, first_token, column);
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (first_token + t < params.x.rows) {
      float x[kRun];
      input.take(t, x);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int k = 0; k < kRun; ++k) {
          sums[t * kRows + r] = fmaf(x[k], weight[r][k], sums[t * kRows + r]);
        }
      }
    }
  }
}

// Lane i gets the sum of everybody's sums[i]: in every round two lanes share the values between
// them, each adding its half.
__device__ float sum_over_warp(float (&sums)[kLanes]) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int round = 1; round <= kRounds; ++round) {
    const int half = kLanes >> round;
    const bool is_upper = (lane & half) != 0;
#pragma unroll
    for (int i = 0; i < kLanes / 2; ++i) {
      if (i < half) {
        const float kept = is_upper ? sums[i + half] : sums[i];
        const float given = is_upper ? sums[i] : sums[i + half];
        sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, half);
      }
    }
  }
  return sums[0];
}

template <typename Operands>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    general_few(const __grid_constant__ GeneralParams params, int token_blocks) {
  __shared__ InputRuns input;
  __shared__ float partial[kWarps][kLanes];
  const int first_token = static_cast<int>(blockIdx.x) % token_blocks * kTokens;
  const int first_row = static_cast<int>(blockIdx.x) / token_blocks * kRows;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sums[kLanes] = {};  // [token][row]
  for (int column = static_cast<int>(threadIdx.x) * kRun; column < params.weight.columns;
       column += kStepColumns) {
    add_products<Operands>(params, first_token, first_row, column, input, sums);
  }
  partial[warp][lane] = sum_over_warp(sums);
  __syncthreads();
  if (warp != 0) return;
  float value = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) value += partial[w][lane];
  const int token = first_token + lane / kRows;
  const int column = first_row + lane % kRows;
  const OutputTarget to =
      target_of(params.outputs, token, column, key_row_of(params.outputs, token));
  if (to.address != nullptr) store_one(to, value + bias_of(params.outputs, column));
}

template <typename Operands> void launch_few_of(const GeneralParams& params, cudaStream_t stream) {
  const unsigned token_blocks = num_blocks(params.outputs.tokens, kTokens);
  const unsigned row_blocks = num_blocks(params.outputs.columns, kRows);
  launch(general_few<Operands>,
         {.grid = dim3(num_blocks(std::int64_t{token_blocks} * row_blocks, 1)),
          .block = dim3(kThreads)},
         stream, params, static_cast<int>(token_blocks));
}

}  // namespace

void launch_few(const GeneralParams& params, cudaStream_t stream) {
  const WeightFormat format = params.weight.format;
  if (format <= WeightFormat::fp8) return launch_few_of<NumberOperands>(params, stream);
  if (format <= WeightFormat::awq) return launch_few_of<GroupOperands>(params, stream);
  with_block_operands(format,
                      [&](auto operands) { launch_few_of<decltype(operands)>(params, stream); });
}

}  // namespace quire::cuda::any::fused_qkv_matmul
