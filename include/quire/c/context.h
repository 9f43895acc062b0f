// SPDX-License-Identifier: Apache-2.0
// How an op runs, as opposed to what it computes: only roundings may depend on it (`kernel`).
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef void (*quire_task)(void* data, int64_t index);

// NULL in place of one: everything as 0 has it.
typedef struct quire_context {
  size_t struct_size;
  int32_t num_threads;  // CPU ops: 0 = all cores, at most 1024
  // GPU ops, 0 or 1: the op may start while the stream's last kernel still runs (programmatic dependent launch). Until
  // that one has ended it reads nothing but weights; 1 is the promise that these were complete before that kernel began.
  int32_t overlaps_previous;
  void* stream;  // GPU ops: a cudaStream_t
  // Scratch of at least the workspace bytes, on the op's device, aligned to 256 bytes; NULL: a CPU op allocates its own,
  // a GPU op asks allocate_workspace.
  void* workspace;
  int64_t workspace_bytes;
  const char*
      kernel;  // only kernels whose name starts with this ("reference", "cpu/avx2"); NULL: the best one
  // CPU ops, a caller's threads in place of the library's pool: calls task(data, index) once for each index in [0, tasks)
  // and returns when all of them have returned. They may run in any order, on any threads. NULL: the pool.
  void (*parallel_for)(void* user, int64_t tasks, quire_task task, void* data);
  void* parallel_for_user;  // handed to parallel_for
  // GPU ops without a workspace: called at most once, when all checks have passed. Memory on the op's device, aligned to
  // 256 bytes, that stays until the work on the stream has ended; NULL ends the call with QUIRE_OUT_OF_MEMORY.
  void* (*allocate_workspace)(void* user, int64_t bytes);
  void* allocate_user;  // handed to allocate_workspace
} quire_context;
