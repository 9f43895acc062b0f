// SPDX-License-Identifier: Apache-2.0
#include "reference/merge_states.h"

#include <cmath>
#include <limits>
#include <vector>

namespace quire::reference {
namespace {

constexpr double kNegativeInfinity = -std::numeric_limits<double>::infinity();

// log Σ exp(lse), -inf without states or where all are empty.
double log_sum_exp(const std::vector<double>& lses) {
  double highest = kNegativeInfinity;
  for (const double lse : lses) highest = std::fmax(highest, lse);
  double sum = 0.0;
  for (const double lse : lses) {
    if (lse != kNegativeInfinity) sum += std::exp(lse - highest);
  }
  return highest + std::log(sum);
}

void merge(const MergeStatesArgs& args, std::int64_t token, std::int64_t head,
           Arithmetic arithmetic) {
  const std::int64_t num_states = args.states.shape[0];
  std::vector<double> lses;
  for (std::int64_t s = 0; s < num_states; ++s) lses.push_back(args.lses.load({s, token, head}));
  const double total = in_register(arithmetic, log_sum_exp(lses));

  for (std::int64_t column = 0; column < args.out.shape[2]; ++column) {
    double sum = 0.0;
    for (std::int64_t s = 0; s < num_states; ++s) {
      const double lse = lses[static_cast<std::size_t>(s)];
      if (lse == kNegativeInfinity) continue;  // its values may be anything
      const double weight = in_register(arithmetic, std::exp(lse - total));
      sum = in_register(arithmetic, sum + weight * args.states.load({s, token, head, column}));
    }
    args.out.store({token, head, column}, sum);
  }
  if (args.lse) args.lse->store({token, head}, total);
}

}  // namespace

void merge_states(const MergeStatesArgs& args, Arithmetic arithmetic) {
  for (std::int64_t token = 0; token < args.out.shape[0]; ++token) {
    for (std::int64_t head = 0; head < args.out.shape[1]; ++head) {
      merge(args, token, head, arithmetic);
    }
  }
}

}  // namespace quire::reference
