// SPDX-License-Identifier: Apache-2.0
// Which kernel takes an mla_decode, and how its work is cut. Pure: tested without a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/variants.h"
#include "quire/ops/mla_decode.h"

namespace quire::cuda::sm90::mla_decode {

// What TMA is told of `pages`, and box_rows in them.
void set_row_maps(MlaDecodeParams& params);
// Whole rows, 16 at a time: in swizzle columns of 128 bytes (`params.format` is set), and spaced out.
void set_swizzle_column_maps(MlaDecodeParams& params);
void set_unit_maps(MlaDecodeParams& params);
// Rows of e4m3 as fp8_pingpong/ takes them, and box_rows in `pages`.
void set_code_maps(MlaDecodeParams& params);

// Right after the attention kernel on the same stream.
// `blocks`: that one had. `work_tiles`: expected of all sequences; more of them take longer, but are taken.
void merge_mla_splits(const MlaDecodeParams& params, std::int64_t work_tiles, int blocks,
                      cudaStream_t stream);

// The compiled kernels as the planner sees them. For host code only: a kernel's own file would compile
// all of them.

// Which of its dtype's row formats a kernel takes.
enum class TakenRows { all, with_scales, without_scales };

struct MlaDecodeVariant {
  std::string_view name;
  DType latents;
  int rows;     // of a work tile, at most
  int cluster;  // blocks that work on the same work tiles
  void (*launch)(const MlaDecodeParams& params, cudaStream_t stream);
  void (*set_maps)(MlaDecodeParams& params);
  bool publishes_splits;  // of its splits (latent/shared.cuh)
  TakenRows taken;
  bool rounds_products;  // of e4m3 rows: q and weights to e4m3 (allow_fp8_products)
};

template <typename Variant>
concept PublishesSplits = requires {
  Variant::kPublishesSplits;
};

template <typename Variant>
concept MultipliesCodes = requires {
  Variant::kTerms;
};

template <typename Variant> constexpr bool rounds_products() {
  if constexpr (MultipliesCodes<Variant>) return Variant::kTerms == 1;
  return false;
}

template <typename Variant>
constexpr MlaDecodeVariant mla_decode_variant(
    std::string_view name, void (*launch)(const MlaDecodeParams& params, cudaStream_t stream),
    void (*set_maps)(MlaDecodeParams& params), TakenRows taken = TakenRows::all) {
  return {name,     Variant::kLatents,        Variant::kRows, Variant::kCluster,         launch,
          set_maps, PublishesSplits<Variant>, taken,          rounds_products<Variant>()};
}

// Of a kind of cache, few rows first.
inline constexpr MlaDecodeVariant kMlaDecodeVariants[] = {
    mla_decode_variant<MlaDecodeBf16R16>("bf16_r16", launch_swap_ab<MlaDecodeBf16R16>,
                                         set_swizzle_column_maps),
    mla_decode_variant<MlaDecodeBf16R64>("bf16_r64", launch_pingpong<MlaDecodeBf16R64>,
                                         set_row_maps),
    mla_decode_variant<MlaDecodeBf16R128>("bf16_r128", launch_pingpong<MlaDecodeBf16R128>,
                                          set_row_maps),
    mla_decode_variant<MlaDecodeBf16R256>("bf16_r256", launch_pingpong<MlaDecodeBf16R256>,
                                          set_row_maps),
    mla_decode_variant<MlaDecodeFp8R16>("fp8_r16", launch_swap_ab<MlaDecodeFp8R16>,
                                        set_swizzle_column_maps, TakenRows::without_scales),
    mla_decode_variant<MlaDecodeFp8BlockR16>("fp8_block_r16", launch_swap_ab<MlaDecodeFp8BlockR16>,
                                             set_unit_maps, TakenRows::with_scales),
    mla_decode_variant<MlaDecodeR64<MlaDecodeCodes>>(
        "fp8_codes_r64", launch_fp8_pingpong<MlaDecodeR64<MlaDecodeCodes>>, set_code_maps),
    mla_decode_variant<MlaDecodeR64<MlaDecodeCodePairs>>(
        "fp8_code_pairs_r64", launch_fp8_pingpong<MlaDecodeR64<MlaDecodeCodePairs>>, set_code_maps,
        TakenRows::without_scales),
    mla_decode_variant<MlaDecodeFp8BlockR64>("fp8_block_r64",
                                             launch_fp8_wgmma<MlaDecodeFp8BlockR64>, set_unit_maps,
                                             TakenRows::with_scales),
    mla_decode_variant<MlaDecodeR128<MlaDecodeCodes>>(
        "fp8_codes_r128", launch_fp8_pingpong<MlaDecodeR128<MlaDecodeCodes>>, set_code_maps),
    mla_decode_variant<MlaDecodeR128<MlaDecodeCodePairs>>(
        "fp8_code_pairs_r128", launch_fp8_pingpong<MlaDecodeR128<MlaDecodeCodePairs>>,
        set_code_maps, TakenRows::without_scales),
    mla_decode_variant<MlaDecodeFp8BlockR128>("fp8_block_r128",
                                              launch_fp8_wgmma<MlaDecodeFp8BlockR128>,
                                              set_unit_maps, TakenRows::with_scales),
};

struct MlaDecodePlan {
  const MlaDecodeVariant* variant = nullptr;
  int tile_tokens = 1;          // whose heads fill a work tile's rows
  std::int64_t work_tiles = 1;  // expected; more of them take longer, but are taken
  std::int64_t most_work_tiles = 1;
  SplitSchedule schedule{};
  std::int64_t slots = 0;  // of splits in the workspace
  // Multiprocessors are idle beside the attention kernel, and equally long sequences leave nothing to merge.
  bool leaves_room = false;
};

// Empty, or why no kernel takes the problem; the device is not looked at.
std::string refuse_mla_decode_problem(const MlaDecodeProblem& problem);
// Of a problem that is not refused.
MlaDecodePlan plan_mla_decode(const MlaDecodeProblem& problem, int num_sms);

}  // namespace quire::cuda::sm90::mla_decode
