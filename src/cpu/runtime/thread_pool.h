// SPDX-License-Identifier: Apache-2.0
// One small pool for the process. Work is a list of independent items, each of which writes its own
// output, so that the number of threads and the order in which they take items cannot change a
// result.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace quire::cpu {

// A borrowed callable: no allocation on the way to the workers.
class ItemFunction {
 public:
  template <typename Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, ItemFunction>) ItemFunction(
      Callable&& callable)  // NOLINT(google-explicit-constructor): made for lambdas at the call
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

// Cores this process may run on.
int num_cores();

// Calls function(item, worker) once for each item in [0, num_items). Items are handed out in order,
// so put the expensive ones first. 0 ≤ worker < num_threads names the scratch a call may use. The
// caller works too; a call from inside an item runs its items one after another on that thread. An
// exception from an item is rethrown here, once all have stopped.
void parallel_for(std::int64_t num_items, int num_threads, ItemFunction function);

}  // namespace quire::cpu
