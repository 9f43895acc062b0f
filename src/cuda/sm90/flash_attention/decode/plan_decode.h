// SPDX-License-Identifier: Apache-2.0
// Which decode kernel takes a problem, and how its work is cut. Pure: tested without a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/sm90/flash_attention/decode/params.h"
#include "quire/mask.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::sm90::flash_attention {

// The compiled kernels as the planner sees them. For host code only: a kernel's own file would compile
// all of them.

struct DecodeVariant {
  std::string_view name;
  DecodeConfig config;
  void (*launch)(const DecodeParams& params, cudaStream_t stream);
};

template <typename Variant> constexpr DecodeVariant decode_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_decode<Variant>};
}

// Of a dtype, narrow heads first, then few rows.
inline constexpr DecodeVariant kDecodeVariants[] = {
    decode_variant<DecodeD64<8>>("bf16_d64_r8"),
    decode_variant<DecodeD64<16>>("bf16_d64_r16"),
    decode_variant<DecodeD64<32>>("bf16_d64_r32"),
    decode_variant<DecodeD128<DType::bf16, 8>>("bf16_d128_r8"),
    decode_variant<DecodeD128<DType::bf16, 16>>("bf16_d128_r16"),
    decode_variant<DecodeD128<DType::bf16, 32>>("bf16_d128_r32"),
    decode_variant<DecodeD128<DType::f16, 8>>("f16_d128_r8"),
    decode_variant<DecodeD128<DType::f16, 16>>("f16_d128_r16"),
    decode_variant<DecodeD128<DType::f16, 32>>("f16_d128_r32"),
    decode_variant<DecodeD128<DType::fp8_e4m3, 8>>("fp8_d128_r8"),
    decode_variant<DecodeD128<DType::fp8_e4m3, 16>>("fp8_d128_r16"),
    decode_variant<DecodeD128<DType::fp8_e4m3, 32>>("fp8_d128_r32"),
    decode_variant<DecodeD256<DType::bf16>>("bf16_d256_r8"),
    decode_variant<DecodeD256<DType::fp8_e4m3>>("fp8_d256_r8"),
    decode_variant<DecodeD512<DType::bf16, 8>>("bf16_d512_r8"),
    decode_variant<DecodeD512<DType::bf16, 16>>("bf16_d512_r16"),
    decode_variant<DecodeD512<DType::bf16, 32>>("bf16_d512_r32"),
    decode_variant<DecodeD512<DType::f16, 8>>("f16_d512_r8"),
    decode_variant<DecodeD512<DType::f16, 16>>("f16_d512_r16"),
    decode_variant<DecodeD512<DType::f16, 32>>("f16_d512_r32"),
    decode_variant<DecodeD512<DType::fp8_e4m3, 8>>("fp8_d512_r8"),
    decode_variant<DecodeD512<DType::fp8_e4m3, 16>>("fp8_d512_r16"),
    decode_variant<DecodeD512<DType::fp8_e4m3, 32>>("fp8_d512_r32"),
};

struct DecodePlan {
  const DecodeVariant* variant = nullptr;
  int tile_tokens = 1;
  SplitSchedule schedule{};
  WorkLists work_lists{};
  std::int64_t slots = 0;  // of splits in the workspace
  bool joins = false;      // splits without a second kernel
};

// A problem with key_blocks as the kernels see it: a batch of pairs (token, KV head), a token and a KV head each, whose
// keys are those of their list. Others are what they are.
FlashAttentionProblem listed_problem(const FlashAttentionProblem& problem);

// Empty, or why no decode kernel takes the problem; the device is not looked at.
std::string refuse_decode_problem(const FlashAttentionProblem& problem);
// Of a problem that is not refused.
DecodePlan plan_decode(const FlashAttentionProblem& problem, int num_sms);

// Masks of decoding: one interval of keys for every query (common/mask/visible_range.h), narrowed by its own
// and of the new keys among them those that a tree shows.

struct TreeMask {
  VisibleRange visible{};
  DecodeTree tree{};
  TokenIntervals intervals{};
};

// Of a mask that refuse_tree_mask() lets pass, and its summary.
TreeMask tree_mask(const Mask& mask, const MaskSummary& summary);
// Empty, or why the mask is not of this kind: two trees, two sets of intervals, or either of two, are not.
std::string refuse_tree_mask(const MaskSummary& mask);

}  // namespace quire::cuda::sm90::flash_attention
