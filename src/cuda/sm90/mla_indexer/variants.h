// SPDX-License-Identifier: Apache-2.0
// Every compiled indexer kernel: the files in variants/ by numbers of heads, a row of variant_table.h for the
// planner.
#pragma once

#include "cuda/sm90/mla_indexer/config.h"

namespace quire::cuda::sm90::mla_indexer {

// For sequences with one new token: bound by memory, so that most of shared memory is stages.
template <int kHeads, int kDims> struct IndexOne {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 1, .dims = kDims, .stages = kDims == 128 ? 15 : 24};
};
// Two tokens read a key tile together.
template <int kHeads, int kDims> struct IndexTwo {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 2, .dims = kDims, .stages = kDims == 128 ? 9 : 15};
};

// A whole row to a cluster (cluster/kernel.cuh): what stages leave of shared memory is for its ranks.
inline constexpr int kMaxClusterKeys = 32768 + 128;
template <int kHeads, int kDims> struct IndexRow {
  static constexpr IndexConfig kConfig{
      .heads = kHeads, .tokens = 1, .dims = kDims, .stages = kDims == 128 ? 9 : 15};
};

}  // namespace quire::cuda::sm90::mla_indexer
