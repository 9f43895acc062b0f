// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/device_values.h"

#include <cuda_runtime_api.h>

#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/status.h"

namespace quire::cuda {

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

std::vector<std::byte> download(const TensorView& tensor, void* stream) {
  std::int64_t last = 0;
  for (int dim = 0; dim < tensor.rank; ++dim) {
    if (tensor.shape[dim] == 0) return {};
    last += (tensor.shape[dim] - 1) * tensor.strides[dim];
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_for(tensor.dtype, last + 1)));
  const DeviceScope scope(tensor.device);
  const auto queue = static_cast<cudaStream_t>(stream);
  check(cudaMemcpyAsync(bytes.data(), tensor.data, bytes.size(), cudaMemcpyDeviceToHost, queue),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(queue), "cudaStreamSynchronize");
  return bytes;
}

}  // namespace quire::cuda
