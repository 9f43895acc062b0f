// SPDX-License-Identifier: Apache-2.0
// A case turned into memory and calls: what the checker and the benchmark work on, the same for
// every op.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "quire/context.h"
#include "quire/plan.h"
#include "reference/arithmetic.h"
#include "tools/case/cache_spec.h"
#include "tools/case/memory.h"
#include "tools/case/relocation.h"
#include "tools/case/row_address.h"

namespace quire::tools {

// `requested`: pages, layers and poison as the case says. `contiguous`: the same logical problem
// without any of them. `deferred`: as requested, but large tensors are only described, for a device
// that fills them itself; nothing on the host may touch those.
enum class Layout : std::uint8_t { requested, contiguous, deferred };

struct Output {
  std::string name;
  TensorView view;
};

// The new tokens' rows of a cache that the op writes.
struct WrittenRows {
  PagedKVCache cache;
  std::int64_t layer = 0;
  Lengths lengths;
  bool key = true;
  bool value = false;
  std::vector<std::int64_t> skipped{};  // tokens of the batch that are not written, ascending

  std::int64_t num_places() const;
  std::vector<RowPlace> places() const;
};

// The ways into an op.
struct Calls {
  using Run = std::function<void(const Context&)>;

  std::function<Plan(const Context&)> supports;
  Run run;
  // The kernel chosen for the arguments, to be run again and again; null where the tool has no use for it.
  std::function<Run(const Context&)> prepare{};
  // Where a weight is packed over there: the storage it needs, and the packing, to be done before the
  // two and again whenever the memory has new contents.
  std::int64_t packed_bytes = 0;
  std::function<void(std::byte* storage, const Context&)> pack{};
};

struct Built {
  // max_bytes: of host memory.
  explicit Built(Layout layout, std::int64_t max_bytes = max_case_bytes())
      : memory(layout == Layout::deferred ? Backing::deferred : Backing::host, max_bytes) {}

  Memory memory;
  std::vector<Output> outputs;
  std::vector<WrittenRows> rows;
  // Tokens that see no key: their `out` must be 0, their `lse` -inf (or, with sinks, the sink).
  std::vector<std::int64_t> empty_tokens;
  bool has_sinks = false;

  std::function<Plan(const Context&)> supports;
  std::function<void(const Context&)> run;
  // The same calls on arguments whose tensors stand elsewhere.
  std::function<Calls(const Relocation&)> relocated;
  // False where the oracle of this op has no such arithmetic.
  std::function<bool(reference::Arithmetic)> reference;
  // A property of the outputs that does not need the twin; empty text: it holds. Outputs of integers are judged by it
  // alone where there is one.
  std::function<std::string()> verify;
  bool verifies_floats = false;  // those too
  // Outputs name places in this very layout (physical rows): only `verify` judges them.
  bool outputs_depend_on_layout = false;

  // Declares an output: it is compared, and it may be written.
  TensorView output(const std::string& name, DType dtype,
                    std::initializer_list<std::int64_t> shape);
  // A tensor that the op changes in place.
  void in_place(const std::string& name, const TensorView& tensor);
  void written_rows(WrittenRows written);
};

// A dense tensor of random numbers.
TensorView build_tensor(Memory& memory, std::uint64_t seed, const std::string& name, DType dtype,
                        std::initializer_list<std::int64_t> shape, double amplitude = 1.0,
                        double mean = 0.0);

// Binds the op's arguments to the calls: `op` is the public function, `oracle` its reference.
template <typename Args, typename Op, typename Oracle>
void bind(Built& built, const Args& args, Op op, Oracle oracle) {
  built.supports = [args](const Context& context) { return supports(args, context); };
  built.run = [args, op](const Context& context) { op(args, context); };
  built.relocated = [args, op](const Relocation& move) {
    const Args there = relocate(args, move);
    return Calls{.supports = [there](const Context& context) { return supports(there, context); },
                 .run = [there, op](const Context& context) { op(there, context); },
                 .prepare = [there](const Context& context) -> Calls::Run {
                   const auto prepared = prepare(validate(there), context);
                   return [there, prepared](const Context& in) { quire::run(prepared, there, in); };
                 }};
  };
  built.reference = [args, oracle](reference::Arithmetic arithmetic) {
    if constexpr (std::is_invocable_v<Oracle, const Args&, reference::Arithmetic>) {
      oracle(args, arithmetic);
      return true;
    } else {
      if (arithmetic != reference::Arithmetic::exact) return false;
      oracle(args);
      return true;
    }
  };
}

}  // namespace quire::tools
