// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_decode/row_maps.h"

#include <numeric>

#include "cuda/hopper/latent_attention/config.h"

namespace quire::cuda::hopper {
namespace {

// (column, row of the page, page)
TensorMap row_map(const LatentPages& pages) {
  TileDescriptor tile;
  tile.dtype = DType::bf16;
  tile.rank = 3;
  tile.dims = {LatentConfig::kLatent + LatentConfig::kRope, pages.page_size, pages.num_pages};
  tile.strides_bytes = {pages.token_stride_bytes, pages.page_stride_bytes};
  tile.box = {LatentConfig::kSlabColumns, pages.box_rows, 1};
  tile.swizzle = Swizzle::b128;
  tile.l2_promotion = L2Promotion::b256;
  return encode_tensor_map(tile, const_cast<std::byte*>(pages.rows));
}

// (byte, row of the page, page)
TensorMap byte_map(const LatentPages& pages, int row_bytes, int box_bytes,
                   int box_rows = LatentConfig::kWarpKeys, Swizzle swizzle = Swizzle::none) {
  TileDescriptor tile;
  tile.dtype = DType::u8;
  tile.rank = 3;
  tile.dims = {row_bytes, pages.page_size, pages.num_pages};
  tile.strides_bytes = {pages.token_stride_bytes, pages.page_stride_bytes};
  tile.box = {box_bytes, box_rows, 1};
  tile.swizzle = swizzle;
  tile.l2_promotion = L2Promotion::b256;
  return encode_tensor_map(tile, const_cast<std::byte*>(pages.rows));
}

}  // namespace

void set_byte_maps(MlaDecodeParams& params, int row_bytes) {
  const LatentRowFormat& format = params.format;
  params.latents = byte_map(params.pages, row_bytes, LatentConfig::kColumns);
  params.tails =
      byte_map(params.pages, row_bytes,
               format.has_fp8_rope ? LatentConfig::kTailColumns : LatentConfig::kTailBytes);
  if (format.row_scales_offset_bytes >= 0) params.scales = byte_map(params.pages, row_bytes, 16);
}

void set_slab_maps(MlaDecodeParams& params, int row_bytes) {
  LatentPages& pages = params.pages;
  pages.box_rows = std::gcd(pages.page_size, LatentConfig::kKeys);
  params.latents = byte_map(pages, row_bytes, 128, pages.box_rows, Swizzle::b128);
  params.tails =
      params.format.has_fp8_rope
          ? byte_map(pages, row_bytes, LatentConfig::kRope, pages.box_rows, Swizzle::b64)
          : byte_map(pages, row_bytes, 2 * LatentConfig::kRope, pages.box_rows, Swizzle::b128);
  if (params.format.row_scales_offset_bytes >= 0) {
    params.scales = byte_map(pages, row_bytes, 16, pages.box_rows);
  }
}

void set_row_maps(MlaDecodeParams& params) {
  params.pages.box_rows = std::gcd(params.pages.page_size, LatentConfig::kKeys);
  params.latents = row_map(params.pages);
}

}  // namespace quire::cuda::hopper
