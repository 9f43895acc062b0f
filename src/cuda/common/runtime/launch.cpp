// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/launch.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "quire/error.h"

namespace quire::cuda {
namespace {

constexpr std::int64_t kMaxGrid = 0x7fffffff;
constexpr std::size_t kAlwaysAllowedBytes = 48 * 1024;

}  // namespace

unsigned num_blocks(std::int64_t work, std::int64_t per_block) {
  const std::int64_t blocks = (work + per_block - 1) / per_block;
  if (blocks > kMaxGrid) {
    throw Error(ErrorCode::invalid_value, "cuda", "grid", "at most 2^31 - 1 blocks",
                std::to_string(blocks));
  }
  return static_cast<unsigned>(blocks);
}

void allow_shared_bytes(const void* kernel, std::size_t shared_bytes) {
  if (shared_bytes <= kAlwaysAllowedBytes) return;
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, std::size_t> allowed;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  std::size_t& limit = allowed[{device, kernel}];
  if (shared_bytes <= limit) return;
  int most = 0;
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  if (shared_bytes > static_cast<std::size_t>(most)) {
    throw Error(ErrorCode::unsupported, "cuda", "shared memory of a CTA",
                "at most " + std::to_string(most) + " bytes on cuda:" + std::to_string(device),
                std::to_string(shared_bytes));
  }
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        "cudaFuncSetAttribute");
  limit = shared_bytes;
}

}  // namespace quire::cuda
