// SPDX-License-Identifier: Apache-2.0
// Rows of 16-bit numbers on their way into fp8, with a scale for every granule of their own, fixed ones or none; columns
// after them that keep their type are copied. A block takes whole tokens (token_coder.cuh).
#include <algorithm>

#include "cuda/any/store/token_coder.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::store {
namespace {

constexpr int kWarp = 32;
constexpr int kBlocksPerSm = 3;

template <typename Config>
__device__ void code_chunks(const StoreParams& params, const CodeLayout& layout,
                            const CodeTarget (&targets)[2][CodeGroups::kMostTokens]) {
  const unsigned first_row = blockIdx.y * layout.block_rows;
  const auto num_rows = static_cast<unsigned>(params.view.num_heads);
  TokenCoder<Config> coder(params, layout,
                           ThreadRun(layout.coded, first_row, layout.block_rows, num_rows),
                           ThreadRun(layout.copied, first_row, layout.block_rows, num_rows));
  const CodeGroups groups(layout);
  unsigned index = blockIdx.x;
  CodeChunk chunk(params, layout, index);
  coder.load(chunk);
  for (int turn = 0; chunk.tokens > 0; turn ^= 1) {
    __syncthreads();  // the group's targets are there, those of the group before it are not needed
    for (unsigned c = 0; c < groups.chunks && chunk.tokens > 0; ++c) {
      const CodeChunk next(params, layout, index += gridDim.x);
      coder.store(targets[turn] + c * layout.block_tokens, chunk, next);
      chunk = next;
    }
  }
}

// Blocks stay and take every gridDim.x-th chunk. The places of chunks are looked up, and a chunk's rows are on
// their way, while those before them are coded: a block for each chunk waits for both, one after the
// other, at its start.
template <typename Config, typename Rows>
__global__ void __launch_bounds__(kCodeThreads + kWarp, kBlocksPerSm)
    code_tokens(const __grid_constant__ Rows rows, const __grid_constant__ CodeLayout layout) {
  const StoreParams& params = side_of(rows);
  __shared__ CodeTarget targets[2][CodeGroups::kMostTokens];
  if (threadIdx.x < kCodeThreads) return code_chunks<Config>(params, layout, targets);
  const PlaceFinder<Rows, TokenFinder> finder(rows);
  const auto has_scales = [] { return Config::kScaling == TokenScaling::granules; };
  const unsigned step = CodeGroups(layout).chunks * gridDim.x;
  unsigned index = blockIdx.x;
  find_targets(layout, finder, index, targets[0], has_scales);
  for (int turn = 1; CodeChunk(params, layout, index).tokens > 0; turn ^= 1) {
    __syncthreads();
    index += step;
    find_targets(layout, finder, index, targets[turn], has_scales);
  }
}

template <DType kX, DType kCoded, typename Rows>
void launch_for(const Rows& rows, const CodeLayout& layout, int sms, cudaStream_t stream) {
  const unsigned chunks = num_blocks(first_side(rows).tokens, layout.block_tokens);
  const unsigned columns = num_blocks(first_side(rows).view.num_heads, layout.block_rows);
  const unsigned resident =
      std::max(1u, static_cast<unsigned>(sms * kBlocksPerSm) / (columns * num_sides(rows)));
  const LaunchShape shape{.grid = dim3(std::min(chunks, resident), columns, num_sides(rows)),
                          .block = dim3(kCodeThreads + kWarp)};
  switch (layout.scaling) {
    case TokenScaling::none:
      return launch(code_tokens<CodeConfig<kX, kCoded, TokenScaling::none>, Rows>, shape, stream,
                    rows, layout);
    case TokenScaling::granules:
      return launch(code_tokens<CodeConfig<kX, kCoded, TokenScaling::granules>, Rows>, shape,
                    stream, rows, layout);
    case TokenScaling::fixed:
      return launch(code_tokens<CodeConfig<kX, kCoded, TokenScaling::fixed>, Rows>, shape, stream,
                    rows, layout);
  }
}

template <DType kX, typename Rows>
void launch_for_x(const Rows& rows, const CodeLayout& layout, int sms, cudaStream_t stream) {
  if (first_side(rows).view.row_format.parts[0].dtype == DType::fp8_e4m3) {
    return launch_for<kX, DType::fp8_e4m3>(rows, layout, sms, stream);
  }
  launch_for<kX, DType::fp8_e5m2>(rows, layout, sms, stream);
}

template <typename Rows>
void launch_rows(const Rows& rows, const CodeLayout& layout, int sms, cudaStream_t stream) {
  if (first_side(rows).x_dtype == DType::bf16) {
    return launch_for_x<DType::bf16>(rows, layout, sms, stream);
  }
  launch_for_x<DType::f16>(rows, layout, sms, stream);
}

}  // namespace

BlockSize block_size(unsigned rows, unsigned coded_vectors, unsigned copied_vectors,
                     TokenScaling scaling) {
  const unsigned most_rows = kCodeThreads / std::max(coded_vectors, copied_vectors);
  if (most_rows == 0) return {.rows = 1, .tokens = 0};
  const unsigned taken = std::min(rows, most_rows);
  const unsigned coded = kCodeThreads / (taken * coded_vectors) * most_vectors(scaling);
  const unsigned copied =
      copied_vectors == 0 ? CodeGroups::kMostTokens : kCodeThreads / (taken * copied_vectors);
  return {.rows = taken, .tokens = std::min({coded, copied, CodeGroups::kMostTokens})};
}

void launch_code(const StoreParams& rows, const CodeLayout& layout, int sms, cudaStream_t stream) {
  launch_rows(rows, layout, sms, stream);
}

void launch_code(const StoreSides& rows, const CodeLayout& layout, int sms, cudaStream_t stream) {
  launch_rows(rows, layout, sms, stream);
}

}  // namespace quire::cuda::any::store
