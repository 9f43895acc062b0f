// SPDX-License-Identifier: Apache-2.0
// The compiled kernels as the planner sees them. For host code only: a kernel's own file would compile
// all of them.
#pragma once

#include <string_view>

#include "cuda/common/matmul/params.h"
#include "cuda/common/matmul/variants.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct TileVariant {
  std::string_view name;
  TileConfig config;
  // Time per column of a tile beside the largest tile's of the same products; measured for tiles
  // of 128 tokens (bf16 at 8192 tokens, fp8 at 512 to 8192), for the others an estimate that only
  // ranks them.
  double relative_cost;
  void (*launch)(const TileParams& params, const TileLaunch& launch);
};

template <typename Variant>
constexpr TileVariant tile_variant(std::string_view name, double relative_cost) {
  return {name, Variant::kConfig, relative_cost, launch_tile<Variant>};
}

inline constexpr TileVariant kTileVariants[] = {
    tile_variant<WholeTilesOnly<TileN256<DType::bf16>>>("bf16_n256", 1.0),
    tile_variant<TileN256<DType::bf16>>("bf16_n256_narrow", 1.0),
    tile_variant<TileN192<DType::bf16>>("bf16_n192", 1.03),
    tile_variant<TileN160<DType::bf16>>("bf16_n160", 1.05),
    tile_variant<TileN96<DType::bf16>>("bf16_n96", 1.15),
    tile_variant<TileN64T16<DType::bf16>>("bf16_n64_t16", 1.2),
    tile_variant<TileN64T64<DType::bf16>>("bf16_n64_t64", 1.2),
    tile_variant<TileN96T64<DType::bf16>>("bf16_n96_t64", 1.2),
    tile_variant<TileN64T128<DType::bf16>>("bf16_n64_t128", 1.4),
    tile_variant<TileN96T128<DType::bf16>>("bf16_n96_t128", 1.25),
    tile_variant<WholeTilesOnly<TileN256<DType::f16>>>("f16_n256", 1.0),
    tile_variant<TileN256<DType::f16>>("f16_n256_narrow", 1.0),
    tile_variant<TileN192<DType::f16>>("f16_n192", 1.03),
    tile_variant<TileN160<DType::f16>>("f16_n160", 1.05),
    tile_variant<TileN96<DType::f16>>("f16_n96", 1.15),
    tile_variant<TileN64T16<DType::f16>>("f16_n64_t16", 1.2),
    tile_variant<TileN64T64<DType::f16>>("f16_n64_t64", 1.2),
    tile_variant<TileN96T64<DType::f16>>("f16_n96_t64", 1.2),
    tile_variant<TileN64T128<DType::f16>>("f16_n64_t128", 1.4),
    tile_variant<TileN96T128<DType::f16>>("f16_n96_t128", 1.25),
    tile_variant<TileN256<DType::f32>>("tf32_n256", 1.0),
    tile_variant<TileN192<DType::f32>>("tf32_n192", 1.03),
    tile_variant<TileN96<DType::f32>>("tf32_n96", 1.15),
    tile_variant<TileN64T16<DType::f32>>("tf32_n64_t16", 1.2),
    tile_variant<TileN64T64<DType::f32>>("tf32_n64_t64", 1.2),
    tile_variant<TileN96T64<DType::f32>>("tf32_n96_t64", 1.2),
    tile_variant<TileN64T128<DType::f32>>("tf32_n64_t128", 1.4),
    tile_variant<TileN96T128<DType::f32>>("tf32_n96_t128", 1.25),
    tile_variant<TileN192<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_n192", 1.0),
    tile_variant<TileN160<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_n160", 1.06),
    tile_variant<TileN96<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_n96", 1.15),
    tile_variant<TileN64T16<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_n64_t16", 1.2),
    tile_variant<TileN64T64<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_n64_t64", 1.2),
    tile_variant<TileN96T64<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_n96_t64", 1.2),
    tile_variant<TileN64T128<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_n64_t128", 1.4),
    tile_variant<TileN96T128<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_n96_t128", 1.25),
    tile_variant<WholeTilesOnly<TileN256FastAccum>>("fp8_fast_accum_n256", 0.96),
    tile_variant<TileN256FastAccum>("fp8_fast_accum_n256_narrow", 0.96),
    tile_variant<WholeTilesOnly<TileN256<DType::fp8_e4m3, Scaling::blocks>>>("fp8_blocks_n256",
                                                                             1.0),
    tile_variant<TileN256<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_n256_narrow", 1.0),
    tile_variant<TileN192<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_n192", 1.03),
    tile_variant<TileN160<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_n160", 1.08),
    tile_variant<TileN96<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_n96", 1.35),
    tile_variant<TileN64T16<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_n64_t16", 1.2),
    tile_variant<TileN64T64<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_n64_t64", 1.2),
    tile_variant<TileN96T64<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_n96_t64", 1.2),
    tile_variant<TileN64T128<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_n64_t128", 1.4),
    tile_variant<TileN96T128<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_n96_t128", 1.4),
    tile_variant<CodesN256<DType::bf16>>("bf16_codes_n256", 1.0),
    tile_variant<CodesN192<DType::bf16>>("bf16_codes_n192", 1.15),
    tile_variant<CodesN128<DType::bf16>>("bf16_codes_n128", 1.2),
    tile_variant<CodesN128T128<DType::bf16>>("bf16_codes_n128_t128", 1.25),
    tile_variant<CodesN64T128<DType::bf16>>("bf16_codes_n64_t128", 1.4),
    tile_variant<CodesN128T64<DType::bf16>>("bf16_codes_n128_t64", 1.15),
    tile_variant<CodesN64T64<DType::bf16>>("bf16_codes_n64_t64", 1.2),
    tile_variant<CodesN256<DType::f16>>("f16_codes_n256", 1.0),
    tile_variant<CodesN192<DType::f16>>("f16_codes_n192", 1.15),
    tile_variant<CodesN128<DType::f16>>("f16_codes_n128", 1.2),
    tile_variant<CodesN128T128<DType::f16>>("f16_codes_n128_t128", 1.25),
    tile_variant<CodesN64T128<DType::f16>>("f16_codes_n64_t128", 1.4),
    tile_variant<CodesN128T64<DType::f16>>("f16_codes_n128_t64", 1.15),
    tile_variant<CodesN64T64<DType::f16>>("f16_codes_n64_t64", 1.2),
    tile_variant<CodesN192<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_codes_n192", 1.15),
    tile_variant<CodesN128<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_codes_n128", 1.2),
    tile_variant<CodesN128T128<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_codes_n128_t128", 1.25),
    tile_variant<CodesN64T128<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_codes_n64_t128", 1.4),
    tile_variant<CodesN128T64<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_codes_n128_t64", 1.15),
    tile_variant<CodesN64T64<DType::fp8_e4m3, Scaling::rows>>("fp8_rows_codes_n64_t64", 1.2),
    tile_variant<CodesN192<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_codes_n192", 1.15),
    tile_variant<CodesN128<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_codes_n128", 1.2),
    tile_variant<CodesN128T128<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_codes_n128_t128",
                                                                  1.25),
    tile_variant<CodesN64T128<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_codes_n64_t128", 1.4),
    tile_variant<CodesN128T64<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_codes_n128_t64", 1.15),
    tile_variant<CodesN64T64<DType::fp8_e4m3, Scaling::blocks>>("fp8_blocks_codes_n64_t64", 1.2),
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
