// SPDX-License-Identifier: Apache-2.0
// Every compiled indexer kernel: one file in variants/ for each, one row of variant_table.h for the
// planner.
#pragma once

#include "cuda/hopper/mla_indexer/config.h"

namespace quire::cuda::hopper {

// For sequences with one new token.
template <int kHeads, int kDims> struct IndexOne {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 1, .dims = kDims, .stages = 1024 / kDims};
};
template <int kHeads, int kDims> struct IndexTwo {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 2, .dims = kDims, .stages = (kHeads == 64 ? 512 : 640) / kDims};
};

}  // namespace quire::cuda::hopper
