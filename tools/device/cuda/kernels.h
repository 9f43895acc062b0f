// SPDX-License-Identifier: Apache-2.0
// The few kernels of the tool itself: filling memory, and moving it as fast as the card can.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace quire::tools {

// target[i] = period[i % period_bytes].
void fill_repeating(std::byte* target, std::int64_t bytes, const std::byte* period,
                    std::int64_t period_bytes, cudaStream_t stream);

// All on whole 16-byte vectors. `write` leaves a pattern; `read` leaves the memory alone and writes
// 4 bytes to `sink` if a sum it takes has one certain value, so that the loads cannot be dropped.
void write_memory(std::byte* target, std::int64_t bytes, cudaStream_t stream);
void read_memory(const std::byte* source, std::int64_t bytes, std::uint32_t* sink,
                 cudaStream_t stream);
void copy_memory(std::byte* target, const std::byte* source, std::int64_t bytes,
                 cudaStream_t stream);
// Kernels that do nothing: without parameters, and with 448 bytes of them and 200 KiB of shared memory.
void do_nothing(cudaStream_t stream);
void do_nothing_large(cudaStream_t stream);

}  // namespace quire::tools
