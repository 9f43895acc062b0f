// SPDX-License-Identifier: Apache-2.0
// How an op runs, as opposed to what it computes: only roundings may depend on it (`kernel`).
#pragma once

#include <cstdint>
#include <string>

#include "quire/export.h"

namespace quire {

// A caller's threads in place of the library's pool. `run` calls task(data, index) once for each
// index in [0, tasks) and returns when all of them have returned. They may run in any order, on any
// threads, at once or one after another. A task never throws and never waits for another one; an op
// asks for at most num_threads of them at a time, and none from inside a task.
struct ParallelFor {
  using Task = void (*)(void* data, std::int64_t index);

  void (*run)(void* user, std::int64_t tasks, Task task, void* data) = nullptr;
  void* user = nullptr;  // handed to `run`
};

// Scratch for a call whose context brings none: `allocate` is called at most once, when all checks have passed, and returns
// memory on the op's device that is aligned to kWorkspaceAlignment and stays until the work that the op has put on the
// stream has ended. What it throws leaves the op; nothing has been started then.
struct WorkspaceAllocator {
  void* (*allocate)(void* user, std::int64_t bytes) = nullptr;
  void* user = nullptr;  // handed to `allocate`
};

inline constexpr int kMaxThreads = 1024;  // of Context::num_threads; ops refuse more

// The cores that this process may use, which is what num_threads = 0 means: those of its affinity,
// and no more than the CPU quotas of its control groups grant. From 1 to kMaxThreads.
QUIRE_API int num_cores();

struct Context {
  int num_threads = 0;         // CPU ops: 0 = all cores, at most kMaxThreads
  ParallelFor parallel_for{};  // CPU ops: run null = the library's pool
  void* stream = nullptr;      // GPU ops: a cudaStream_t
  // GPU ops: the op may start while the stream's last kernel still runs (programmatic dependent
  // launch). Until that one has ended it reads nothing but weights; true is the promise that these
  // were complete before that kernel began.
  bool overlaps_previous = false;
  // scratch of at least Plan::workspace_bytes; null: a CPU op allocates its own, a GPU op asks the allocator
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;
  WorkspaceAllocator workspace_allocator{};
  // Takes only candidates whose name starts with this ("reference", "cpu/avx2"); empty: the best
  // one.
  std::string kernel{};
};

}  // namespace quire
