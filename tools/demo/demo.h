// SPDX-License-Identifier: Apache-2.0
// `quire demo`: a continuous-batching run of a Llama-style and a DeepSeek-V3.2-style stack through
// every op. Requests of different lengths arrive and leave, a PageManager shares, copies, caches and
// evicts their pages, freed ones are poisoned, and the oracle repeats every call on contiguous
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

#include "quire/tensor_view.h"

namespace quire::tools {

struct DemoOptions {
  std::string device = "cpu";
  int num_requests = 8;  // per stack, at most 26
  std::uint64_t seed = 17;
  std::string kernel{};  // only kernels whose name starts so; empty: the best
  bool verbose = false;  // the generated tokens too
  // Tests only: sees every output before it is compared, and may spoil it.
  std::function<void(std::string_view op, const TensorView& output)> saboteur{};
};

// The exit code: 0, or 1 if something disagreed with the oracle.
int run_demo(const DemoOptions& options);  // to stdout
int run_demo(const DemoOptions& options, std::ostream& out);

}  // namespace quire::tools
