// SPDX-License-Identifier: Apache-2.0
// Which compiled kernel scores a problem and how its rows are merged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/common/runtime/device_facts.h"
#include "cuda/sm90/mla_indexer/config.h"
#include "cuda/sm90/mla_indexer/params.h"
#include "quire/ops/mla_indexer.h"

namespace quire::cuda::sm90::mla_indexer {

// The compiled indexer kernels as the planner sees them. For host code only: a kernel's own file would
// compile all of them.

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

struct IndexPlan {
  const IndexVariant* variant = nullptr;
  int parts = 0;  // CTAs that score
  int box_rows = 0;
  int merges = 0;  // blocks of tokens that may be cut
  ClusterShape cluster{};
  GroupShape group{};

  bool takes_whole_rows() const { return cluster.size > 0; }
  bool has_groups() const { return group.parts > 0; }

  std::int64_t slots() const { return 2 * std::int64_t{parts}; }
};

// Empty, or why no compiled kernel takes the problem.
std::string refuse_index_problem(const MlaIndexerProblem& problem);
IndexPlan plan_index(const MlaIndexerProblem& problem, int num_sms);
// The plan where a stream has but a share of the SMs: groups that would not all run at once give way to splits,
// clusters become smaller. It needs no more workspace than either way of the plan does.
IndexPlan fit_share(IndexPlan plan, const StreamShare& share);

}  // namespace quire::cuda::sm90::mla_indexer
