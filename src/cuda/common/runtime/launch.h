// SPDX-License-Identifier: Apache-2.0
// One way to start a kernel: shape by name, parameters checked against the kernel's own, status
// never dropped. Allocates nothing on the device and never waits, so it may be captured.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/common/runtime/status.h"

namespace quire::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  unsigned cluster = 1;  // CTAs along x that share their shared memory
  std::size_t shared_bytes = 0;
  // Programmatic dependent launch: the kernel may start while its predecessor in the stream still
  // runs, and waits for that one's writes itself (cudaGridDependencySynchronize).
  bool overlaps_previous = false;
};

// Shared memory that a CTA may have on every GPU from sm_80 on (that of sm_86 and sm_89): kernels of any/ ask for no more.
inline constexpr std::size_t kSharedBytesOfEveryGpu = 99 * 1024;

// CTAs for `work` threads, rows or tiles, `per_block` each; more than a grid can have is an error.
unsigned num_blocks(std::int64_t work, std::int64_t per_block);

// Lets `kernel` use `shared_bytes` of dynamic shared memory on the current device, or throws where that has less; the
// driver is asked once per kernel and device.
void allow_shared_bytes(const void* kernel, std::size_t shared_bytes);

// A grid without blocks is no work, not an error.
template <typename... Params>
void launch(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream,
            const std::type_identity_t<Params>&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  allow_shared_bytes(reinterpret_cast<const void*>(kernel), shape.shared_bytes);
  std::array<cudaLaunchAttribute, 2> attributes{};
  unsigned num_attributes = 0;
  if (shape.cluster > 1) {
    attributes[num_attributes].id = cudaLaunchAttributeClusterDimension;
    attributes[num_attributes].val.clusterDim = {shape.cluster, 1, 1};
    ++num_attributes;
  }
  if (shape.overlaps_previous) {
    attributes[num_attributes].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[num_attributes].val.programmaticStreamSerializationAllowed = 1;
    ++num_attributes;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = num_attributes;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "cudaLaunchKernelEx");
}

// A kernel all of whose CTAs run at the same time, so that they may wait for each other (the
// cooperative groups' barrier of the grid). A grid that the device has no room for is an error.

template <typename... Params>
void launch_cooperative(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream,
                        const std::type_identity_t<Params>&... arguments) {
  const auto* address = reinterpret_cast<const void*>(kernel);
  allow_shared_bytes(address, shape.shared_bytes);
  std::array<void*, sizeof...(Params)> places{const_cast<Params*>(&arguments)...};
  check(cudaLaunchCooperativeKernel(address, shape.grid, shape.block, places.data(),
                                    shape.shared_bytes, stream),
        "cudaLaunchCooperativeKernel");
}

}  // namespace quire::cuda
