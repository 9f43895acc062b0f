// SPDX-License-Identifier: Apache-2.0
// Which compiled kernel takes a prefill, and how its work is cut. Pure: tested without a GPU.
#pragma once

#include <string>
#include <string_view>

#include "cuda/common/prefill_attention/config.h"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::sm90::flash_attention {

// The compiled prefill kernels as the planner sees them. For host code only: a kernel's own file would
// compile all of them.

struct PrefillVariant {
  std::string_view name;
  PrefillConfig config;
  // One of the three.
  void (*launch)(const PrefillParams& params, const PagedKeys& keys, const PrefillLaunch& launch);
  void (*launch_fp8)(const PrefillParams& params, const TransposedKeys& keys,
                     const PrefillLaunch& launch);
  void (*launch_dequantizing)(const PrefillParams& params, const DequantizedKeys& keys,
                              const PrefillLaunch& launch);

  // V comes as it is and is transposed in shared memory.
  constexpr bool transposes() const { return config.has_fp8_products() && launch != nullptr; }
};

template <typename Variant> constexpr PrefillVariant prefill_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_prefill<Variant>, nullptr, nullptr};
}
template <typename Variant> constexpr PrefillVariant fp8_variant(std::string_view name) {
  return {name, Variant::kConfig, nullptr, launch_fp8<Variant>, nullptr};
}

template <typename Variant> constexpr PrefillVariant transposing_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_transposing<Variant>, nullptr, nullptr};
}
template <typename Variant> constexpr PrefillVariant dequantizing_variant(std::string_view name) {
  return {name, Variant::kConfig, nullptr, nullptr, launch_dequantizing<Variant>};
}

// Scores::modified takes every problem; Scores::scaled is there too where speed was asked for.
inline constexpr PrefillVariant kPrefillVariants[] = {
    prefill_variant<PrefillD64<DType::bf16, Scores::scaled>>("bf16_d64"),
    prefill_variant<PrefillD64<DType::bf16, Scores::modified>>("bf16_d64_modified"),
    prefill_variant<PrefillD80<DType::bf16, Scores::modified>>("bf16_d80_modified"),
    prefill_variant<PrefillD96<DType::bf16, Scores::scaled>>("bf16_d96"),
    prefill_variant<PrefillD96<DType::bf16, Scores::modified>>("bf16_d96_modified"),
    prefill_variant<PrefillD112<DType::bf16, Scores::modified>>("bf16_d112_modified"),
    prefill_variant<PrefillD128<DType::bf16, Scores::scaled>>("bf16_d128"),
    prefill_variant<PrefillD128<DType::bf16, Scores::modified>>("bf16_d128_modified"),
    prefill_variant<PrefillD192V128<DType::bf16, Scores::scaled>>("bf16_d192_v128"),
    prefill_variant<PrefillD192V128<DType::bf16, Scores::modified>>("bf16_d192_v128_modified"),
    prefill_variant<PrefillD192<DType::bf16, Scores::modified>>("bf16_d192_modified"),
    prefill_variant<PrefillD256<DType::bf16, Scores::scaled>>("bf16_d256"),
    prefill_variant<PrefillD256<DType::bf16, Scores::modified>>("bf16_d256_modified"),
    prefill_variant<PrefillD512<DType::bf16, Scores::scaled>>("bf16_d512"),
    prefill_variant<PrefillD512<DType::bf16, Scores::modified>>("bf16_d512_modified"),
    prefill_variant<PrefillD64<DType::f16, Scores::modified>>("f16_d64_modified"),
    prefill_variant<PrefillD80<DType::f16, Scores::modified>>("f16_d80_modified"),
    prefill_variant<PrefillD96<DType::f16, Scores::modified>>("f16_d96_modified"),
    prefill_variant<PrefillD112<DType::f16, Scores::modified>>("f16_d112_modified"),
    prefill_variant<PrefillD128<DType::f16, Scores::scaled>>("f16_d128"),
    prefill_variant<PrefillD128<DType::f16, Scores::modified>>("f16_d128_modified"),
    prefill_variant<PrefillD192V128<DType::f16, Scores::modified>>("f16_d192_v128_modified"),
    prefill_variant<PrefillD192<DType::f16, Scores::modified>>("f16_d192_modified"),
    prefill_variant<PrefillD256<DType::f16, Scores::modified>>("f16_d256_modified"),
    prefill_variant<PrefillD512<DType::f16, Scores::modified>>("f16_d512_modified"),
    prefill_variant<PrefillD64E4m3<DType::bf16, Scores::modified>>("bf16_e4m3_d64_modified"),
    prefill_variant<PrefillD128E4m3<DType::bf16, Scores::scaled>>("bf16_e4m3_d128"),
    prefill_variant<PrefillD128E4m3<DType::bf16, Scores::modified>>("bf16_e4m3_d128_modified"),
    dequantizing_variant<PrefillD128Dequantizing<DType::bf16, Scores::scaled>>(
        "bf16_d128_dequantizing"),
    fp8_variant<Fp8D128<DType::bf16, Scores::scaled>>("fp8_bf16_d128"),
    fp8_variant<Fp8D192V128<DType::bf16, Scores::scaled>>("fp8_bf16_d192_v128"),
    transposing_variant<Fp8D192V128<DType::bf16, Scores::scaled>>("transposing_bf16_d192_v128"),
};

// How K and V come to the products.
enum class PrefillPath : std::uint8_t {
  direct,        // out of the pages
  dequantized,   // out of the workspace, where another kernel put them as numbers of q's dtype
  dequantizing,  // the same, put there by warps of the same kernel
  fp8,           // K out of the pages, V transposed out of the workspace
  transposing,   // out of the pages, V transposed in shared memory
};

// What kind of scores a problem asks for: the fast kind is a positive factor.
Scores scores_of(const FlashAttentionProblem& problem);

// Empty, or why no compiled kernel takes the problem.
std::string refuse_prefill(const FlashAttentionProblem& problem);
// Of a problem that is not refused.
PrefillPath prefill_path(const FlashAttentionProblem& problem, Scores scores);

struct PrefillPlan {
  PrefillPath path = PrefillPath::direct;
  const PrefillVariant* variant = nullptr;
  int columns = 0;          // of the page table that the workspace has room for
  int box_rows = 0;         // of a page that one copy brings
  int tile_heads_log2 = 0;  // heads of a KV head side by side in a tile
  int blocks = 0;
  bool cuts_tail =
      false;  // the last tiles, along their keys (common/prefill_attention/tail_cuts.h)
  bool transposes_ahead = false;  // V of heads that come later, beside the tiles (fp8/kernel.cuh)
};

PrefillPlan plan_prefill(const FlashAttentionProblem& problem, Scores scores, int num_sms);

// What one launch takes of a problem: all of it, or as many sequences as have room for their copies of K and V in
// max_workspace_bytes. ragged.tokens is then their share of the tokens.
FlashAttentionProblem launch_part(const FlashAttentionProblem& problem, Scores scores);

// What a prefill keeps in the caller's workspace: one list for the plan's bytes and the launch's
// addresses.

struct PrefillWorkspace {
  int* next_tile = nullptr;  // and what else begins at zero behind it
  std::int64_t zero_bytes = 0;
  TailSplits tail{};
  // PrefillPath::dequantizing (launch_prefill.h), fp8 (launch_prefill.h)
  std::uint32_t* states = nullptr;
  std::byte* rows = nullptr;
  // PrefillPath::dequantized (prefill/dequantized/dequantize_pages.h)
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::uint32_t* table = nullptr;
  // PrefillPath::fp8 (common/prefill_attention/fp8/transpose_values.h)
  std::byte* transposed = nullptr;
  std::int64_t bytes = 0;

  PrefillWorkspace(const FlashAttentionProblem& problem, const PrefillPlan& plan,
                   void* base = nullptr);
};

// Blocks of keys of a sequence's KV head, as launch_prefill.h counts them.
int dequantized_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan);
// Blocks of keys of a sequence, as common/prefill_attention/fp8/transpose_values.h counts them.
int transposed_blocks(const FlashAttentionProblem& problem, const PrefillPlan& plan);

}  // namespace quire::cuda::sm90::flash_attention
