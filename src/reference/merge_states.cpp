// SPDX-License-Identifier: Apache-2.0
#include "reference/merge_states.h"

#include <cmath>
#include <limits>
#include <vector>

namespace quire::reference {
namespace {

constexpr double kNegativeInfinity = -std::numeric_limits<double>::infinity();

// exp(lse) of each state relative to the highest one: an LSE far from 0 has no room for the logarithm of a
// sum, so weights are quotients and never differences from the total.
struct Weights {
  std::vector<double> parts;  // of the sum
  double sum = 0.0;
  double highest = kNegativeInfinity;

  Weights(const std::vector<double>& lses, Arithmetic arithmetic) {
    for (const double lse : lses) highest = std::fmax(highest, lse);
    for (const double lse : lses) {
      const bool is_empty = lse == kNegativeInfinity;
      parts.push_back(is_empty ? 0.0 : in_register(arithmetic, std::exp(lse - highest)));
      sum = in_register(arithmetic, sum + parts.back());
    }
  }

  // log Σ exp(lse), -inf without states or where all are empty.
  double log_sum() const { return highest + std::log(sum); }
};

void merge(const MergeStatesArgs& args, std::int64_t token, std::int64_t head,
           Arithmetic arithmetic) {
  const std::int64_t num_states = args.states.shape[0];
  std::vector<double> lses;
  for (std::int64_t s = 0; s < num_states; ++s) lses.push_back(args.lses.load({s, token, head}));
  const Weights weights(lses, arithmetic);

  for (std::int64_t column = 0; column < args.out.shape[2]; ++column) {
    double sum = 0.0;
    for (std::int64_t s = 0; s < num_states; ++s) {
      const auto index = static_cast<std::size_t>(s);
      if (lses[index] == kNegativeInfinity) continue;  // its values may be anything
      const double weight = in_register(arithmetic, weights.parts[index] / weights.sum);
      sum = in_register(arithmetic, sum + weight * args.states.load({s, token, head, column}));
    }
    args.out.store({token, head, column}, sum);
  }
  if (args.lse) args.lse->store({token, head}, in_register(arithmetic, weights.log_sum()));
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
