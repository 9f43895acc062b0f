// SPDX-License-Identifier: Apache-2.0
// One small pool for the process. Work is a list of independent items, each of which writes its own
// output, so that the number of threads and the order in which they take items cannot change a
// result.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "quire/context.h"

namespace quire::cpu {

// A borrowed callable: no allocation on the way to the workers.
class ItemFunction {
 public:
  // Made for lambdas at the call.
  template <typename Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, ItemFunction>)
      // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
      ItemFunction(Callable&& callable)
      : state_(std::addressof(callable)),
        call_([](const void* state, std::int64_t item, int worker) {
          (*static_cast<std::remove_reference_t<Callable>*>(const_cast<void*>(state)))(item,
                                                                                       worker);
        }) {}

  void operator()(std::int64_t item, int worker) const { call_(state_, item, worker); }

 private:
  const void* state_;
  void (*call_)(const void*, std::int64_t, int);
};

// Cores this process may use: quire::num_cores().
int num_cores();

// How many may work at once, and whose threads they are. Made from Context::num_threads or from the
// whole context; a bare number means the pool of this file.
struct Workers {
  Workers(int num_threads);         // NOLINT(google-explicit-constructor): 0 = all cores
  Workers(const Context& context);  // NOLINT(google-explicit-constructor): the usual argument

  Workers at_most(std::int64_t num_items) const;

  int count;           // from 1 to kMaxThreads
  ParallelFor caller;  // run null: the pool
};

// Calls function(item, worker) once for each item in [0, num_items). Items are handed out in order,
// so put the expensive ones first. 0 ≤ worker < workers.count names the scratch a call may use. In
// the pool the caller works too. A call from inside an item runs its items one after another on
// that thread. An exception from an item is rethrown here, once all have stopped.
void parallel_for(std::int64_t num_items, const Workers& workers, ItemFunction function);

}  // namespace quire::cpu
