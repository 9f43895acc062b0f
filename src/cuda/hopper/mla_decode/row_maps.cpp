// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_decode/row_maps.h"

#include <bit>
#include <numeric>

#include "cuda/hopper/mla_decode/few_rows/config.h"

namespace quire::cuda::hopper {
namespace {

// (column of the slab, row of the page, slab, page)
TensorMap row_map(const LatentPages& pages, int rows, int slabs) {
  constexpr int kColumns = LatentConfig::kSlabColumns;
  TileDescriptor tile;
  tile.dtype = DType::bf16;
  tile.rank = 4;
  tile.dims = {kColumns, pages.page_size, (LatentConfig::kLatent + LatentConfig::kRope) / kColumns,
               pages.num_pages};
  tile.strides_bytes = {pages.token_stride_bytes, bytes_for(DType::bf16, kColumns),
                        pages.page_stride_bytes};
  tile.box = {kColumns, rows, slabs, 1};
  tile.swizzle = Swizzle::b128;
  tile.l2_promotion = L2Promotion::b128;
  return encode_tensor_map(tile, const_cast<std::byte*>(pages.rows));
}

}  // namespace

void set_slab_maps(MlaDecodeParams& params) {
  params.latents = row_map(params.pages, FewRowsConfig::kUnitKeys, FewRowsConfig::kSlabs);
}

// (8 bytes, row of the page, page). Bytes of the box behind a row's end are zeros: they space rows out.
void set_unit_maps(MlaDecodeParams& params) {
  constexpr int kElement = 8;
  const LatentPages& pages = params.pages;
  constexpr int kPitch = FewRowsConfig::kFp8Pitch;
  TileDescriptor tile;
  tile.dtype = DType::i64;
  tile.rank = 3;
  tile.dims = {pages.row_bytes / kElement, pages.page_size, pages.num_pages};
  tile.strides_bytes = {pages.token_stride_bytes, pages.page_stride_bytes};
  tile.box = {kPitch / kElement, FewRowsConfig::kUnitKeys, 1};
  tile.l2_promotion = L2Promotion::b128;
  params.latents = encode_tensor_map(tile, const_cast<std::byte*>(pages.rows));
}

void set_row_maps(MlaDecodeParams& params) {
  params.pages.box_rows = std::gcd(params.pages.page_size, LatentConfig::kKeys);
  params.pages.box_bits = std::countr_zero(static_cast<unsigned>(params.pages.box_rows));
  params.latents = row_map(params.pages, params.pages.box_rows, 2);
  params.tails = row_map(params.pages, params.pages.box_rows, 1);
}

}  // namespace quire::cuda::hopper
