// SPDX-License-Identifier: Apache-2.0
// How an op runs, as opposed to what it computes: results never depend on it.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

struct Context {
  int num_threads = 0;     // CPU ops: 0 = all cores
  void* stream = nullptr;  // GPU ops: a cudaStream_t
  // scratch of at least Plan::workspace_bytes; null: a CPU op allocates its own
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;
  // Takes only candidates whose name starts with this ("reference", "cpu/avx2"); empty: the best
  // one.
  std::string kernel{};
};

}  // namespace quire
