// SPDX-License-Identifier: Apache-2.0
// Which compiled kernel scores a problem and how its rows are merged.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/common/runtime/device_facts.h"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/variant_table.h"
#include "quire/ops/mla_indexer.h"

namespace quire::cuda::sm90::mla_indexer {

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
// The plan where a stream has but a share of the SMs: groups that would not all run at once give way to pieces,
// clusters become smaller. It needs no more workspace than either way of the plan does.
IndexPlan fit_share(IndexPlan plan, const StreamShare& share);

}  // namespace quire::cuda::sm90::mla_indexer
