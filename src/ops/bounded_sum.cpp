// SPDX-License-Identifier: Apache-2.0
#include "ops/bounded_sum.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace quire::ops {
namespace {

__extension__ using Int128 = __int128;

// x with number · x ≡ 1 (mod modulus), for coprime ones.
std::int64_t inverse_of(std::int64_t number, std::int64_t modulus) {
  std::int64_t previous = modulus;
  std::int64_t current = number % modulus;
  std::int64_t previous_factor = 0;
  std::int64_t factor = 1;
  while (current > 1) {
    const std::int64_t quotient = previous / current;
    previous = std::exchange(current, previous - quotient * current);
    previous_factor = std::exchange(factor, previous_factor - quotient * factor);
  }
  return factor < 0 ? factor + modulus : factor;
}

// The terms from one of them on, largest coefficient first.
struct Rest {
  BoundedTerm first;
  std::int64_t reach;    // the largest sum
  std::int64_t divisor;  // of every sum
  bool is_complete;      // every multiple of the divisor up to reach is a sum
};

class Search {
 public:
  explicit Search(std::span<const BoundedTerm> terms) : rests_(terms.size()) {
    for (std::size_t i = terms.size(); i-- > 0;) {
      const auto [coefficient, bound] = terms[i];
      Rest& rest = rests_[i];
      rest = {.first = terms[i],
              .reach = coefficient * bound,
              .divisor = coefficient,
              .is_complete = true};
      if (i + 1 == terms.size()) continue;
      const Rest& next = rests_[i + 1];
      rest.reach += next.reach;
      rest.divisor = std::gcd(coefficient, next.divisor);
      rest.is_complete = next.is_complete && rest.divisor == next.divisor &&
                         coefficient <= next.reach + next.divisor;
    }
  }

  std::optional<bool> run(std::int64_t target) {
    const bool is_found = find(0, target);
    if (!is_found && steps_left_ <= 0) return std::nullopt;
    return is_found;
  }

 private:
  bool find(std::size_t index, std::int64_t target) {
    if (index == rests_.size()) return target == 0;
    const Rest& rest = rests_[index];
    if (target < 0 || target > rest.reach || target % rest.divisor != 0) return false;
    if (rest.is_complete) return true;
    const Rest& next = rests_[index + 1];  // a single term is complete
    const std::int64_t missing = std::max<std::int64_t>(target - next.reach, 0);
    const std::int64_t coefficient = rest.first.coefficient;
    const std::int64_t low = missing / coefficient + (missing % coefficient != 0);
    const std::int64_t high = std::min(rest.first.bound, target / coefficient);
    // x leaves a multiple of what divides the rest: every step-th one does.
    const std::int64_t step = next.divisor / std::gcd(coefficient, next.divisor);
    for (std::int64_t x = first_match(rest, step, target, low); x <= high; x += step) {
      if (--steps_left_ <= 0) return false;
      if (find(index + 1, target - coefficient * x)) return true;
    }
    return false;
  }

  // The smallest x from `low` on that leaves a multiple of the rest's divisor.
  static std::int64_t first_match(const Rest& rest, std::int64_t step, std::int64_t target,
                                  std::int64_t low) {
    if (step == 1) return low;
    const std::int64_t inverse = inverse_of(rest.first.coefficient / rest.divisor, step);
    const auto wanted = static_cast<std::int64_t>(Int128{target / rest.divisor} * inverse % step);
    const std::int64_t ahead = (wanted - low % step + step) % step;
    return low + ahead;
  }

  std::vector<Rest> rests_;
  int steps_left_ = 1 << 13;
};

}  // namespace

std::optional<bool> can_sum_to(std::vector<BoundedTerm> terms, std::int64_t target) {
  std::erase_if(terms, [](const BoundedTerm& t) { return t.coefficient == 0 || t.bound == 0; });
  std::ranges::sort(terms, std::ranges::greater(), &BoundedTerm::coefficient);
  std::vector<BoundedTerm> joined;
  for (const BoundedTerm& term : terms) {
    if (!joined.empty() && joined.back().coefficient == term.coefficient) {
      joined.back().bound += term.bound;
    } else {
      joined.push_back(term);
    }
  }
  return Search(joined).run(target);
}

}  // namespace quire::ops
