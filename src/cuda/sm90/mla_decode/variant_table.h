// SPDX-License-Identifier: Apache-2.0
// The compiled kernels as the planner sees them. For host code only: a kernel's own file would compile
// all of them.
#pragma once

#include <string_view>

#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/projections.h"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {

// Which of its dtype's row formats a kernel takes.
enum class TakenRows { all, with_scales, without_scales };

struct MlaDecodeVariant {
  std::string_view name;
  DType latents;
  int rows;     // of an item, at most
  int cluster;  // blocks that work on the same items
  void (*launch)(const MlaDecodeParams& params, cudaStream_t stream);
  void (*set_maps)(MlaDecodeParams& params);
  bool leaves_notes;  // of its pieces (roles/find_part.cuh)
  TakenRows taken;
};

template <typename Variant>
concept LeavesNotes = requires {
  Variant::kLeavesNotes;
};

template <typename Variant>
constexpr MlaDecodeVariant mla_decode_variant(
    std::string_view name, void (*launch)(const MlaDecodeParams& params, cudaStream_t stream),
    void (*set_maps)(MlaDecodeParams& params), TakenRows taken = TakenRows::all) {
  return {name,   Variant::kLatents, Variant::kRows,       Variant::kCluster,
          launch, set_maps,          LeavesNotes<Variant>, taken};
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
    mla_decode_variant<MlaDecodeFp8R64>("fp8_r64", launch_fp8_wgmma<MlaDecodeFp8R64>,
                                        set_unit_maps),
    mla_decode_variant<MlaDecodeFp8R128>("fp8_r128", launch_fp8_wgmma<MlaDecodeFp8R128>,
                                         set_unit_maps),
};

}  // namespace quire::cuda::sm90::mla_decode
