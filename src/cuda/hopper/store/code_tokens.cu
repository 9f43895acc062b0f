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
constexpr int kVectors = 4;  // coded ones of a thread; one more is copied
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

// The vectors of a thread: the same row and column of every `step`-th token of the block.
struct ThreadRun {
  unsigned token;  // the first; past all of them where the thread has none
  unsigned step;
  unsigned row;  // of the token
  unsigned vector;

  __device__ ThreadRun(const VectorRun& run, unsigned first_row, unsigned rows, unsigned num_rows) {
    const unsigned per_token = rows * run.per_row.value();
    step = run.is_used ? kThreads / per_token : 0;
    token = threadIdx.x / per_token;
    const unsigned in_token = threadIdx.x - token * per_token;
    const unsigned own = run.per_row.quotient(in_token);
    row = first_row + own;
    vector = in_token - own * run.per_row.value();
    if (token >= step || row >= num_rows) token = kNone;
  }

  static constexpr unsigned kNone = 0x40000000;
};

template <typename Config> class TokenBlock {
 public:
  __device__ TokenBlock(const StoreParams& params, const CodeLayout& layout)
      : params_(params),
        layout_(layout),
        coded_(layout.coded, blockIdx.y * layout.block_rows, layout.block_rows,
               static_cast<unsigned>(params.view.num_heads)),
        copied_(layout.copied, blockIdx.y * layout.block_rows, layout.block_rows,
                static_cast<unsigned>(params.view.num_heads)) {
    first_token_ = std::int64_t{blockIdx.x} * layout.block_tokens;
    const std::int64_t left = params.tokens - first_token_;
    tokens_ = left < layout.block_tokens ? static_cast<unsigned>(left) : layout.block_tokens;
  }

  __device__ void load() {
    const std::byte* from = source(layout_.coded, coded_);
    const std::int64_t step = coded_.step * params_.token_stride_bytes;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) < tokens_) raw_[i] = __ldcs(reinterpret_cast<const uint4*>(from + i * step));
    }
    if (copied_.token >= tokens_) return;
    copied_raw_ = __ldcs(reinterpret_cast<const uint4*>(source(layout_.copied, copied_)));
  }

  // A lane per token, the first warps.
  __device__ void find(TokenTarget* targets) const {
    if ((threadIdx.x & ~31u) >= tokens_) return;
    const TokenFinder finder(params_.row_offsets, params_.view.cache_lengths, params_.view.batch);
    const TokenPlace place = finder.find(first_token_ + threadIdx.x);
    if (threadIdx.x >= tokens_) return;
    TokenTarget target{first_row(params_.view, place), nullptr};
    if (layout_.scales_are_in_row) {
      target.scale = target.row;
    } else if (Config::kScaling == Scaling::granules) {
      target.scale = first_scale(params_.view, place);
    }
    targets[threadIdx.x] = target;
  }

  // All lanes take part in the maxima.
  __device__ void store(const TokenTarget* targets) const {
    typename Amax::Value amax[kVectors];
    if constexpr (Config::kScaling == Scaling::granules) find_largest(amax);
    const std::int64_t offset = coded_.row * params_.view.head_stride_bytes +
                                layout_.coded.offset_bytes + coded_.vector * kEight;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) >= tokens_) break;
      const TokenTarget target = targets[token(i)];
      if (target.row == nullptr) continue;
      if constexpr (Config::kScaling == Scaling::granules) {
        const GranuleCodes coded = Coder::encode(raw_[i], Amax::magnitude(amax[i]));
        store_codes(target.row + offset, coded.codes);
        store_scale(target.scale, coded.scale);
      } else {
        store_codes(target.row + offset, unscaled_codes(raw_[i]));
      }
    }
    if (copied_.token >= tokens_) return;
    std::byte* row = targets[copied_.token].row;
    if (row == nullptr) return;
    row += copied_.row * params_.view.head_stride_bytes + layout_.copied.offset_bytes;
    reinterpret_cast<uint4*>(row)[copied_.vector] = copied_raw_;
  }

 private:
  using X = Eight<Config::kX>;
  using Amax = Largest<Config::kX>;
  using Coder = GranuleCoder<Config::kX, Config::kCoded>;

  __device__ unsigned token(int i) const {
    return coded_.token + i * coded_.step;
  }

  __device__ const std::byte* source(const VectorRun& run, const ThreadRun& own) const {
    return params_.x + (first_token_ + own.token) * params_.token_stride_bytes +
           own.row * params_.head_stride_bytes + run.x_offset_bytes + own.vector * sizeof(uint4);
  }

  __device__ void find_largest(typename Amax::Value (&amax)[kVectors]) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) amax[i] = Amax::of(raw_[i]);
    for (unsigned step = 1u << layout_.granule_shift >> 1; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        amax[i] = Amax::merge(amax[i], Amax::exchange(amax[i], step));
      }
    }
  }

  __device__ static void store_codes(std::byte* target, uint2 codes) {
    *reinterpret_cast<uint2*>(target) = codes;
  }
  __device__ void store_scale(std::byte* scales, float scale) const {
    const unsigned granule = coded_.vector >> layout_.granule_shift;
    if (scales == nullptr || granule << layout_.granule_shift != coded_.vector) return;
    scales += coded_.row * layout_.scale_head_bytes + layout_.scale_offset_bytes +
              granule * layout_.scale_slot_bytes;
    *reinterpret_cast<float*>(scales) = scale;
  }

  __device__ static uint2 unscaled_codes(const uint4& raw) {
    float values[kEight];
    X::decode(raw, values);
    return encode_fp8 < Config::kCoded == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2 > (values);
  }

  const StoreParams& params_;
  const CodeLayout& layout_;
  ThreadRun coded_;
  ThreadRun copied_;
  std::int64_t first_token_;
  unsigned tokens_;
  uint4 raw_[kVectors] = {};
  uint4 copied_raw_ = {};
};

template <typename Config>
__global__ void __launch_bounds__(kThreads, 4)
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
  const LaunchShape shape{.grid = dim3(num_blocks(params.tokens, layout.block_tokens),
                                       num_blocks(params.view.num_heads, layout.block_rows)),
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

BlockSize block_size(unsigned rows, unsigned coded_vectors, unsigned copied_vectors) {
  const unsigned most_rows = kThreads / std::max(coded_vectors, copied_vectors);
  if (most_rows == 0) return {.rows = 1, .tokens = 0};
  const unsigned taken = std::min(rows, most_rows);
  const unsigned coded = kThreads / (taken * coded_vectors) * kVectors;
  const unsigned copied = copied_vectors == 0 ? kMostTokens : kThreads / (taken * copied_vectors);
  return {.rows = taken, .tokens = std::min({coded, copied, static_cast<unsigned>(kMostTokens)})};
}

void launch_code(const StoreParams& params, const CodeLayout& layout, cudaStream_t stream) {
  if (params.x_dtype == DType::bf16) return launch_for_x<DType::bf16>(params, layout, stream);
  launch_for_x<DType::f16>(params, layout, stream);
}

}  // namespace quire::cuda::hopper
