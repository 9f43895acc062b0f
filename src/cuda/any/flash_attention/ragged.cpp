// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/flash_attention/launch.h"
#include "cuda/any/flash_attention/ragged_lengths.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_scope.h"

namespace quire::cuda::any::flash_attention {
namespace {

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
      launch_ragged_lengths({.row_offsets = args.row_offsets.as<const std::uint32_t>(),
                             .key_offsets = args.key_offsets->as<const std::uint32_t>(),
                             .batch = batch_,
                             .lengths = scratch.lengths},
                            static_cast<cudaStream_t>(context.stream));
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
