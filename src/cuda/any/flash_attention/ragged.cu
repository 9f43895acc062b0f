// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/flash_attention/launch.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::flash_attention {
namespace {

// Positions of the queries of a ragged batch whose keys are no cache's.
struct RaggedLengths {
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  const std::uint32_t* key_offsets = nullptr;  // [batch + 1]
  std::int64_t batch = 0;
  // [batch] keys - queries: where the first query stands. Kernels read it as a signed number: of more queries than keys
  // the first stand before the first key.
  std::uint32_t* lengths = nullptr;
};

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    ragged_lengths_kernel(const __grid_constant__ RaggedLengths params) {
  const std::int64_t sequence = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (sequence >= params.batch) return;
  const std::uint32_t keys = params.key_offsets[sequence + 1] - params.key_offsets[sequence];
  const std::uint32_t queries = params.row_offsets[sequence + 1] - params.row_offsets[sequence];
  params.lengths[sequence] = keys - queries;
}

// Makes the lengths that a kernel reads, in front of it.
class RaggedKernel final : public Kernel<FlashAttentionArgs> {
 public:
  RaggedKernel(const FlashAttentionProblem& problem, KernelPtr<FlashAttentionArgs> kernel)
      : batch_(problem.ragged.batch), kernel_(std::move(kernel)) {}

  std::int64_t workspace_bytes() const override {
    Carver counter;
    static_cast<void>(carve(counter));
    return counter.bytes();
  }
  Choices choices() const override { return kernel_->choices(); }

  void run(const FlashAttentionArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0 || batch_ == 0) return;
    Carver carver(context.workspace);
    const Scratch scratch = carve(carver);
    {
      const DeviceScope scope(args.q.device);
      launch(ragged_lengths_kernel,
             {.grid = dim3(num_blocks(batch_, kThreads)), .block = dim3(kThreads)},
             static_cast<cudaStream_t>(context.stream),
             {.row_offsets = args.row_offsets.as<const std::uint32_t>(),
              .key_offsets = args.key_offsets->as<const std::uint32_t>(),
              .batch = batch_,
              .lengths = scratch.lengths});
    }
    FlashAttentionArgs with_lengths = args;
    with_lengths.cache.cache_lengths =
        TensorView::contiguous(scratch.lengths, DType::u32, {batch_}, args.q.device);
    Context inner = context;
    inner.workspace = scratch.kernel;
    kernel_->run(with_lengths, inner);
  }

 private:
  struct Scratch {
    std::uint32_t* lengths;  // [batch]
    std::byte* kernel;       // workspace of the kernel
  };
  Scratch carve(Carver& carver) const {
    return {.lengths = carver.take<std::uint32_t>(batch_),
            .kernel = carver.take<std::byte>(kernel_->workspace_bytes())};
  }

  std::int64_t batch_;
  KernelPtr<FlashAttentionArgs> kernel_;
};

}  // namespace

KernelPtr<FlashAttentionArgs> with_ragged_lengths(const FlashAttentionProblem& problem,
                                                  KernelPtr<FlashAttentionArgs> kernel) {
  if (!problem.has_ragged_keys) return kernel;
  return std::make_unique<const RaggedKernel>(problem, std::move(kernel));
}

}  // namespace quire::cuda::any::flash_attention
