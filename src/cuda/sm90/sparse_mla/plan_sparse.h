// SPDX-License-Identifier: Apache-2.0
// What is decided before a launch: a pure function of the problem and the number of multiprocessors.
#pragma once

#include <string>

#include "cuda/sm90/sparse_mla/variant_table.h"
#include "quire/ops/sparse_mla.h"

namespace quire::cuda::sm90::sparse_mla {

struct SparsePlan {
  const SparseVariant* variant = nullptr;
  SparseWork work{};
  int blocks = 0;
};

// Empty, or why no compiled kernel takes the problem.
std::string refuse_sparse_problem(const SparseMlaProblem& problem);

SparsePlan plan_sparse(const SparseMlaProblem& problem, int num_sms);

}  // namespace quire::cuda::sm90::sparse_mla
