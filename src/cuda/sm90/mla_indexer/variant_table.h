// SPDX-License-Identifier: Apache-2.0
// The compiled indexer kernels as the planner sees them. For host code only: a kernel's own file would
// compile all of them.
#pragma once

#include <string_view>

#include "cuda/sm90/mla_indexer/cluster/params.h"
#include "cuda/sm90/mla_indexer/group/params.h"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/variants.h"

namespace quire::cuda::sm90::mla_indexer {

struct IndexVariant {
  std::string_view name;
  IndexConfig config;
  void (*launch)(const IndexParams& params, cudaStream_t stream);
  // Whole rows; nullptr: no kernel does.
  void (*launch_cluster)(const IndexParams& params, const ClusterShape& shape,
                         cudaStream_t stream) = nullptr;
  // A few rows, each by several CTAs; nullptr: no kernel does.
  void (*launch_group)(const IndexParams& params, const GroupBoard& board, const GroupShape& shape,
                       cudaStream_t stream) = nullptr;
};

template <int kHeads, int kDims> constexpr IndexVariant one_token(std::string_view name) {
  using Variant = IndexOne<kHeads, kDims>;
  return {name, Variant::kConfig, launch_index<Variant>,
          launch_index_cluster<IndexRow<kHeads, kDims>>,
          launch_index_group<IndexGroup<kHeads, kDims>>};
}
template <int kHeads, int kDims> constexpr IndexVariant two_tokens(std::string_view name) {
  using Variant = IndexTwo<kHeads, kDims>;
  return {name, Variant::kConfig, launch_index<Variant>};
}

// Of the same heads and dims: fewer tokens first. Four heads are half of the fewest columns of a product,
// so that two tokens share one.
inline constexpr IndexVariant kIndexVariants[] = {
    one_token<64, 128>("h64_d128_t1"), two_tokens<64, 128>("h64_d128_t2"),
    one_token<32, 128>("h32_d128_t1"), two_tokens<32, 128>("h32_d128_t2"),
    one_token<16, 128>("h16_d128_t1"), two_tokens<16, 128>("h16_d128_t2"),
    one_token<8, 128>("h8_d128_t1"),   two_tokens<8, 128>("h8_d128_t2"),
    two_tokens<4, 128>("h4_d128_t2"),  one_token<64, 64>("h64_d64_t1"),
    two_tokens<64, 64>("h64_d64_t2"),  one_token<32, 64>("h32_d64_t1"),
    two_tokens<32, 64>("h32_d64_t2"),  one_token<16, 64>("h16_d64_t1"),
    two_tokens<16, 64>("h16_d64_t2"),  one_token<8, 64>("h8_d64_t1"),
    two_tokens<8, 64>("h8_d64_t2"),    two_tokens<4, 64>("h4_d64_t2"),
};

}  // namespace quire::cuda::sm90::mla_indexer
