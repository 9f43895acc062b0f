// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "cuda/any/flash_attention/launch.h"
#include "cuda/common/general_attention/paged_attention.h"
#include "cuda/common/paging/attention_views.h"
#include "cuda/common/runtime/device_scope.h"

namespace quire::cuda::any::flash_attention {
namespace {

ScoreParams score_params(const FlashAttentionArgs& args) {
  const auto head_dim = static_cast<double>(args.q.shape[2]);
  return {.scale = static_cast<float>(args.scale.value_or(1.0 / std::sqrt(head_dim))),
          .softcap = static_cast<float>(args.softcap),
          .alibi_slopes =
              args.alibi_slopes.has_value() ? args.alibi_slopes->as<const float>() : nullptr};
}

KeyBlockLists key_block_lists(const FlashAttentionArgs& args) {
  if (!args.key_blocks.has_value()) return {};
  const TensorView& blocks = *args.key_blocks;
  return {.ids = blocks.as<const std::int32_t>(),
          .token_stride = blocks.strides[0],
          .head_stride = blocks.strides[1],
          .slots = blocks.shape[2],
          .block_size = args.key_block_size};
}

PagedAttentionParams params_of(const FlashAttentionArgs& args) {
  const auto [keys, values] = attention_views(args);
  return {.q = plain_rows(args.q),
          .tokens = args.q.shape[0],
          .group = static_cast<std::int32_t>(args.q.shape[1] / keys.num_heads),
          .row_offsets = args.row_offsets.as<const std::uint32_t>(),
          .keys = row_reader(keys),
          .values = row_reader(values),
          .score = score_params(args),
          .mask = mask_program(args.mask),
          .output = attend_output(args.out, args.lse, args.sinks),
          .blocks = key_block_lists(args)};
}

void run(const FlashAttentionArgs& args, const Context& context) {
  const DeviceScope scope(args.q.device);
  const PagedAttentionParams params = params_of(args);
  if (params.tokens == 0 || params.keys.view.batch == 0) return;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (args.key_blocks.has_value()) return launch_listed_attention(params, stream);
  launch_paged_attention(params, stream);
}

}  // namespace

KernelPtr<FlashAttentionArgs> prepare_general(const FlashAttentionProblem&) {
  return std::make_unique<const PlainKernel<FlashAttentionArgs>>(run);
}

}  // namespace quire::cuda::any::flash_attention
