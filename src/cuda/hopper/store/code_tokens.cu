// SPDX-License-Identifier: Apache-2.0
// Rows of 16-bit numbers on their way into fp8, with a scale for every granule of their own or none; columns after
// them that keep their type are copied. A block takes whole tokens: all of its loads are on their way while its
// first warps find the pages, and neighbouring lanes hold a granule.
#include <algorithm>

#include "cuda/hopper/store/params.h"
#include "cuda/rows/granule_coder.cuh"
#include "cuda/rows/largest.cuh"
#include "cuda/rows/token_finder.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 8;  // coded ones of a thread; one more is copied
constexpr int kMostTokens = 64;

enum class Scaling : std::uint8_t { none, granules };

template <DType kXType, DType kCodedType, Scaling kRule> struct CodeConfig {
  static constexpr DType kX = kXType;
  static constexpr DType kCoded = kCodedType;
  static constexpr Scaling kScaling = kRule;
};

// Where a token's rows and scales begin; null: nowhere.
struct TokenTarget {
  std::byte* row;
  std::byte* scale;
};

struct VectorPlace {
  unsigned token;  // of the block
  unsigned row;    // of the token
  unsigned vector;
};

__device__ VectorPlace place_of_vector(const VectorRun& run, unsigned index) {
  const unsigned token = run.per_token.quotient(index);
  const unsigned in_token = index - token * run.per_token.value();
  const unsigned row = run.per_row.quotient(in_token);
  return {token, row, in_token - row * run.per_row.value()};
}

template <typename Config> class TokenBlock {
 public:
  __device__ TokenBlock(const StoreParams& params, const CodeLayout& layout)
      : params_(params), layout_(layout) {
    first_token_ = std::int64_t{blockIdx.x} * layout.block_tokens;
    const std::int64_t left = params.tokens - first_token_;
    tokens_ = left < layout.block_tokens ? static_cast<unsigned>(left) : layout.block_tokens;
  }

  __device__ void load() {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) load_vector(layout_.coded, i, raw_[i]);
    load_vector(layout_.copied, 0, copied_);
  }

  // A lane per token, the first warps.
  __device__ void find(TokenTarget* targets) const {
    if ((threadIdx.x & ~31u) >= tokens_) return;
    const TokenFinder finder(params_.row_offsets, params_.view.cache_lengths, params_.view.batch);
    const TokenPlace place = finder.find(first_token_ + threadIdx.x);
    if (threadIdx.x >= tokens_) return;
    targets[threadIdx.x] = {first_row(params_.view, place), nullptr};
    if (layout_.scales_are_in_row) {
      targets[threadIdx.x].scale = targets[threadIdx.x].row;
    } else if (Config::kScaling == Scaling::granules) {
      targets[threadIdx.x].scale = first_scale(params_.view, place);
    }
  }

  // All lanes take part in the maxima.
  __device__ void store(const TokenTarget* targets) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (Config::kScaling == Scaling::granules) {
        store_granules(targets, i);
      } else {
        store_codes(targets, i, unscaled_codes(raw_[i]));
      }
    }
    if (!holds(layout_.copied, 0)) return;
    const VectorPlace at = place_of_vector(layout_.copied, threadIdx.x);
    std::byte* row = row_of(targets, at);
    if (row == nullptr) return;
    reinterpret_cast<uint4*>(row + layout_.copied.offset_bytes)[at.vector] = copied_;
  }

 private:
  using X = Eight<Config::kX>;
  using Amax = Largest<Config::kX>;
  using Coder = GranuleCoder<Config::kX, Config::kCoded>;

  __device__ static unsigned index(int i) {
    return i * kThreads + threadIdx.x;
  }
  __device__ bool holds(const VectorRun& run, int i) const {
    return run.is_used && index(i) < tokens_ * run.per_token.value();
  }

  __device__ void load_vector(const VectorRun& run, int i, uint4& raw) const {
    if (!holds(run, i)) return;
    const VectorPlace at = place_of_vector(run, index(i));
    const std::byte* row = params_.x + (first_token_ + at.token) * params_.token_stride_bytes +
                           at.row * params_.head_stride_bytes + run.x_offset_bytes;
    raw = __ldcs(reinterpret_cast<const uint4*>(row) + at.vector);
  }

  __device__ std::byte* row_of(const TokenTarget* targets, const VectorPlace& at) const {
    std::byte* row = targets[at.token].row;
    return row == nullptr ? nullptr : row + at.row * params_.view.head_stride_bytes;
  }

  __device__ static uint2 unscaled_codes(const uint4& raw) {
    float values[kEight];
    X::decode(raw, values);
    return encode_fp8 < Config::kCoded == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2 > (values);
  }

  __device__ void store_codes(const TokenTarget* targets, int i, uint2 codes) const {
    if (!holds(layout_.coded, i)) return;
    const VectorPlace at = place_of_vector(layout_.coded, index(i));
    std::byte* row = row_of(targets, at);
    if (row == nullptr) return;
    reinterpret_cast<uint2*>(row + layout_.coded.offset_bytes)[at.vector] = codes;
  }

  __device__ void store_granules(const TokenTarget* targets, int i) const {
    typename Amax::Value largest = Amax::of(raw_[i]);
    for (unsigned step = 1u << layout_.granule_shift >> 1; step > 0; step /= 2) {
      largest = Amax::merge(largest, Amax::exchange(largest, step));
    }
    if (!holds(layout_.coded, i)) return;
    const Coder coder(Amax::magnitude(largest));
    store_codes(targets, i, coder.codes(raw_[i]));
    const VectorPlace at = place_of_vector(layout_.coded, index(i));
    const unsigned granule = at.vector >> layout_.granule_shift;
    std::byte* scale = targets[at.token].scale;
    if (scale == nullptr || granule << layout_.granule_shift != at.vector) return;
    scale += at.row * layout_.scale_head_bytes + layout_.scale_offset_bytes +
             granule * layout_.scale_slot_bytes;
    *reinterpret_cast<float*>(scale) = coder.scale();
  }

  const StoreParams& params_;
  const CodeLayout& layout_;
  std::int64_t first_token_;
  unsigned tokens_;
  uint4 raw_[kVectors] = {};
  uint4 copied_ = {};
};

template <typename Config>
__global__ void __launch_bounds__(kThreads, 3)
    code_tokens(const __grid_constant__ StoreParams params,
                const __grid_constant__ CodeLayout layout) {
  __shared__ TokenTarget targets[kMostTokens];
  TokenBlock<Config> block(params, layout);
  block.load();
  block.find(targets);
  __syncthreads();
  block.store(targets);
}

template <DType kX, DType kCoded>
void launch_for(const StoreParams& params, const CodeLayout& layout, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(num_blocks(params.tokens, layout.block_tokens)),
                          .block = dim3(kThreads)};
  if (layout.has_scales) {
    return launch(code_tokens<CodeConfig<kX, kCoded, Scaling::granules>>, shape, stream, params,
                  layout);
  }
  launch(code_tokens<CodeConfig<kX, kCoded, Scaling::none>>, shape, stream, params, layout);
}

template <DType kX>
void launch_for_x(const StoreParams& params, const CodeLayout& layout, cudaStream_t stream) {
  if (params.view.row_format.parts[0].dtype == DType::fp8_e4m3) {
    return launch_for<kX, DType::fp8_e4m3>(params, layout, stream);
  }
  launch_for<kX, DType::fp8_e5m2>(params, layout, stream);
}

}  // namespace

unsigned most_tokens_of_block(unsigned coded_vectors, unsigned copied_vectors) {
  const unsigned coded = kThreads * kVectors / coded_vectors;
  const unsigned copied = copied_vectors == 0 ? kMostTokens : kThreads / copied_vectors;
  return std::min({coded, copied, static_cast<unsigned>(kMostTokens)});
}

void launch_code(const StoreParams& params, const CodeLayout& layout, cudaStream_t stream) {
  if (params.x_dtype == DType::bf16) return launch_for_x<DType::bf16>(params, layout, stream);
  launch_for_x<DType::f16>(params, layout, stream);
}

}  // namespace quire::cuda::hopper
