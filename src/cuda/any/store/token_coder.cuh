// SPDX-License-Identifier: Apache-2.0
// What a thread of launch_code() does: it takes the same vector of several tokens, so that what finds a row, a scale
// and a place in x is computed once. Neighbouring lanes hold a granule.
#pragma once

#include "cuda/any/store/places.cuh"
#include "cuda/common/rows/granule_coder.cuh"

namespace quire::cuda::any::store {

// The tokens that a block of launch_code() works on, and where their rows and scales go.

// Where a token's rows and scales begin; null: nowhere.
struct alignas(16) CodeTarget {
  std::byte* row;
  std::byte* scale;
};

// What a block takes at a time: neighbouring tokens.
struct CodeChunk {
  std::int64_t first_token;
  unsigned tokens;  // 0: past the last chunk

  __device__ CodeChunk(const StoreParams& params, const CodeLayout& layout, unsigned index) {
    first_token = std::int64_t{index} * layout.block_tokens;
    const std::int64_t left = params.tokens - first_token;
    tokens = left <= 0                    ? 0
             : left < layout.block_tokens ? static_cast<unsigned>(left)
                                          : layout.block_tokens;
  }
};

// A block's chunks: every gridDim.x-th, in groups whose places are looked up at once.
struct CodeGroups {
  static constexpr unsigned kLanes = 32;
  static constexpr unsigned kMostTokens = 64;  // of a chunk

  unsigned chunks;  // of a group

  __device__ explicit CodeGroups(const CodeLayout& layout)
      : chunks(layout.block_tokens < kLanes ? kLanes / layout.block_tokens : 1) {}
};

// By one warp: a lane for each of up to 32 tokens of a group's chunks, the first of which is `index`.
template <typename Finder, typename HasScales>
__device__ inline void find_targets(const CodeLayout& layout, const Finder& finder, unsigned index,
                                    CodeTarget* targets, HasScales has_scales) {
  const unsigned group_tokens = CodeGroups(layout).chunks * layout.block_tokens;
  for (unsigned first = 0; first < group_tokens; first += CodeGroups::kLanes) {
    const unsigned own = first + threadIdx.x % CodeGroups::kLanes;
    const unsigned chunk = own / layout.block_tokens;
    const std::int64_t token = std::int64_t{index + chunk * gridDim.x} * layout.block_tokens +
                               (own - chunk * layout.block_tokens);
    const TokenPlace place = finder.find(token);
    if (own >= group_tokens) continue;
    CodeTarget target{finder.row(place), nullptr};
    if (layout.scales_are_in_row) {
      target.scale = target.row;
    } else if (has_scales()) {
      target.scale = finder.scale(place);
    }
    targets[own] = target;
  }
}

inline constexpr int kCodeThreads = 256;  // that code; a warp beside them looks up places

// Coded ones of a thread, by the registers there are for them; one more is copied.
constexpr int most_vectors(TokenScaling scaling) {
  return scaling == TokenScaling::none ? 4 : 3;
}

template <DType kXType, DType kCodedType, TokenScaling kRule> struct CodeConfig {
  static constexpr DType kX = kXType;
  static constexpr DType kCoded = kCodedType;
  static constexpr TokenScaling kScaling = kRule;
  static constexpr int kVectors = most_vectors(kRule);
};

// The vectors of a thread: the same row and column of every `step`-th token of the block.
struct ThreadRun {
  unsigned token;  // the first; past all of them where the thread has none
  unsigned step;
  std::uint16_t row;  // of the token
  std::uint16_t vector;

  __device__ ThreadRun(const VectorRun& run, unsigned first_row, unsigned rows, unsigned num_rows) {
    const unsigned per_token = rows * run.per_row.value();
    step = run.is_used ? kCodeThreads / per_token : 0;
    token = threadIdx.x / per_token;
    const unsigned in_token = threadIdx.x - token * per_token;
    const unsigned own = run.per_row.quotient(in_token);
    row = static_cast<std::uint16_t>(first_row + own);
    vector = static_cast<std::uint16_t>(in_token - own * run.per_row.value());
    if (token >= step || first_row + own >= num_rows) token = kNone;
  }

  static constexpr unsigned kNone = 0x40000000;
};

// Where the vectors of a thread come from and go to, from the places of their tokens on. Worked out again for every
// vector, this was a quarter of all instructions: keep() makes registers of it.
struct ThreadOffsets {
  const std::byte* x;  // the first vector of the call's first chunk
  int row;

  __device__ ThreadOffsets(const StoreParams& params, const VectorRun& run, const ThreadRun& own,
                           int vector_bytes)
      : x(params.x + own.token * params.token_stride_bytes + own.row * params.head_stride_bytes +
          run.x_offset_bytes + own.vector * sizeof(uint4)),
        row(static_cast<int>(own.row * params.view.head_stride_bytes + run.offset_bytes) +
            own.vector * vector_bytes) {}
  __device__ void keep() { asm volatile("" : "+l"(x), "+r"(row)); }
};

template <typename Config> class TokenCoder {
 public:
  __device__ TokenCoder(const StoreParams& params, const CodeLayout& layout, const ThreadRun& coded,
                        const ThreadRun& copied)
      : params_(params),
        layout_(layout),
        token_(coded.token),
        step_(coded.step),
        copied_token_(copied.token),
        coded_(params, layout.coded, coded, sizeof(uint2)),
        copied_(params, layout.copied, copied, sizeof(uint4)) {
    const unsigned granule = coded.vector >> layout.granule_shift;
    const auto scale =
        static_cast<int>(coded.row * layout.scale_head_bytes + layout.scale_offset_bytes +
                         granule * layout.scale_slot_bytes);
    if constexpr (Config::kScaling == TokenScaling::fixed) {
      if (coded.token != ThreadRun::kNone) {
        quotient_ =
            Quotient(*reinterpret_cast<const float*>(params.view.scales.data + scale), 0.0f);
      }
    }
    if (granule << layout.granule_shift == coded.vector) scale_ = scale;
    coded_.keep();
    asm volatile("" : "+r"(scale_));
  }

  __device__ void load(const CodeChunk& chunk) {
    const std::int64_t first = chunk.first_token * params_.token_stride_bytes;
    const std::byte* from = coded_.x + first;
    const std::int64_t step = step_ * params_.token_stride_bytes;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) < chunk.tokens) raw_[i] = load_vector(from);
      from += step;
    }
    if (copied_token_ < chunk.tokens) copied_raw_ = load_vector(copied_.x + first);
  }

  // Codes and stores a chunk; the next one is on its way as soon as this one is coded. All lanes take
  // part in the maxima.
  __device__ void store(const CodeTarget* targets, const CodeChunk& chunk, const CodeChunk& next) {
    typename Amax::Value amax[kVectors];
    if constexpr (Config::kScaling == TokenScaling::granules) find_largest(amax);
    GranuleCodes codes[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) < chunk.tokens) codes[i] = encode(raw_[i], amax[i]);
    }
    if (copied_token_ < chunk.tokens) store_copied(targets[copied_token_].row, copied_raw_);
    load(next);  // before the other stores: behind them it waits, a tenth of all the time
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) < chunk.tokens) store_codes(targets[token(i)], codes[i]);
    }
  }

 private:
  static constexpr int kVectors = Config::kVectors;
  using X = Vec8<Config::kX>;
  using Amax = Largest<Config::kX>;
  using Coder = GranuleCoder<Config::kX, Config::kCoded>;

  __device__ unsigned token(int i) const {
    return token_ + i * step_;
  }
  __device__ static uint4 load_vector(const std::byte* from) {
    return __ldcs(reinterpret_cast<const uint4*>(from));
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

  __device__ GranuleCodes encode(const uint4& raw, const typename Amax::Value& amax) const {
    if constexpr (Config::kScaling == TokenScaling::granules) {
      return Coder::encode(raw, Amax::magnitude(amax));
    } else {
      float values[kVec8];
      X::decode(raw, values);
      if constexpr (Config::kScaling == TokenScaling::fixed) {
        quotient_.up_to(Amax::magnitude(Amax::of(raw))).divide(values);
      }
      constexpr auto kFormat = Config::kCoded == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2;
      return {encode_fp8<kFormat>(values), 1.0f};
    }
  }

  __device__ void store_codes(const CodeTarget& target, const GranuleCodes& codes) const {
    if (target.row != nullptr) write(target.row + coded_.row, codes.codes);
    if constexpr (Config::kScaling == TokenScaling::granules) {
      if (target.row != nullptr && target.scale != nullptr && scale_ >= 0) {
        write(target.scale + scale_, codes.scale);
      }
    }
  }
  __device__ void store_copied(std::byte* row, const uint4& raw) const {
    if (row != nullptr) write(row + copied_.row, raw);
  }
  template <typename T> __device__ static void write(std::byte* to, const T& value) {
    __builtin_assume(__isGlobal(to));  // which an address from shared memory does not say
    *reinterpret_cast<T*>(to) = value;
  }

  const StoreParams& params_;
  const CodeLayout& layout_;
  unsigned token_;  // of a chunk: the first of the thread's, then every step_-th
  unsigned step_;
  unsigned copied_token_;
  ThreadOffsets coded_;
  ThreadOffsets copied_;
  int scale_ = -1;                 // from a token's first scale; -1: another thread's
  Quotient quotient_{1.0f, 0.0f};  // by the fixed scale of the thread's row and column
  uint4 raw_[kVectors] = {};
  uint4 copied_raw_ = {};
};

}  // namespace quire::cuda::any::store
