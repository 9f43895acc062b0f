// SPDX-License-Identifier: Apache-2.0
// Every compiled attention kernel of mla_decode: one file in variants/ for each, one row of
// variant_table.h for the planner.
#pragma once

#include "cuda/hopper/latent_attention/config.h"

namespace quire::cuda::hopper {

struct MlaDecodeBf16R64 {
  static constexpr LatentConfig kConfig{.row_groups = 1, .stages = 4, .copies = RowCopies::boxes};
};
struct MlaDecodeBf16R128 {
  static constexpr LatentConfig kConfig{
      .row_groups = 2, .stages = 3, .copies = RowCopies::boxes, .values = ValueTurn::at_once};
};
// A kernel of its own (many_rows/): what the planner asks is here.
struct MlaDecodeBf16ManyRows {
  static constexpr LatentConfig kConfig{.row_groups = 2, .stages = 2, .copies = RowCopies::boxes};
};
// Rows of e4m3, converted on the way.
struct MlaDecodeFp8R64 {
  static constexpr LatentConfig kConfig{
      .row_groups = 1, .stages = 2, .copies = RowCopies::converted, .raw_stages = 3};
};
struct MlaDecodeFp8R128 {
  static constexpr LatentConfig kConfig{
      .row_groups = 2, .stages = 2, .copies = RowCopies::converted, .raw_stages = 2};
};

}  // namespace quire::cuda::hopper
