// SPDX-License-Identifier: Apache-2.0
// One small pool for the process. Work is a list of independent items, each of which writes its own
// output, so that the number of threads and the order in which they take items cannot change a
// result. Neither can whether workers are asked at all: a call that is too short to wait for sleeping threads does
// without them.
#pragma once

#include <cstdint>
#include <limits>
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
  // For a call that one thread would need so long for, give or take a factor of two: as many as find enough to do.
  Workers for_nanoseconds(double needed) const;

  int count;  // from 1 to kMaxThreads
  // Of the call on one thread. What waking threads costs is held against it; not told, they are always woken.
  double nanoseconds = std::numeric_limits<double>::infinity();
  ParallelFor caller;  // run null: the pool
};

// For tests, which would have to be slow otherwise: calls of any length are shared among all threads, sleeping ones
// too. Off unless QUIRE_SHARE_SHORT_CALLS is 1 when the first op runs.
void share_short_calls(bool is_on);

// Calls function(item, worker) once for each item in [0, num_items). Items are handed out in order,
// so put the expensive ones first. 0 ≤ worker < workers.count names the scratch a call may use. In
// the pool the caller works too, and at once; threads that sleep are woken where the call is long enough, or comes soon
// after others which together are. A call from inside an item runs its items one after another on
// that thread. An exception from an item is rethrown here, once all have stopped.
void parallel_for(std::int64_t num_items, const Workers& workers, ItemFunction function);

}  // namespace quire::cpu
