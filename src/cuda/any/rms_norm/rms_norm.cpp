// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/rms_norm/launch.h"
#include "cuda/any/rms_norm/params.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"

namespace quire::cuda::any::rms_norm {
namespace {

constexpr int kVectorColumns = 8;
constexpr int kVectorBytes = 16;
constexpr unsigned kBlocksPerSm = 8;  // 256 threads each: as many as an SM holds

bool is_aligned(std::int64_t value) {
  return value % kVectorBytes == 0;
}

bool is_aligned(const void* address) {
  return is_aligned(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address)));
}

}  // namespace

std::optional<SpanLayout> span_layout(const RmsNormParams& params) {
  const KvLayerView& view = params.view;
  const RowPart& part = view.row_format.parts[0];
  const bool is_token = params.token_spans == 1 && view.num_heads > 1;
  const bool has_gaps = is_token && (view.head_stride_bytes != view.row_format.row_bytes ||
                                     !view.row_format.is_uniform());
  const bool fits = !has_gaps && bits(part.dtype) > 8 && params.columns % kVectorColumns == 0 &&
                    (is_token || params.columns <= part.width);
  const bool aligned = is_aligned(view.data) && is_aligned(part.offset_bytes) &&
                       is_aligned(view.page_stride_bytes) && is_aligned(view.token_stride_bytes) &&
                       (is_token || is_aligned(view.head_stride_bytes)) && is_aligned(params.gamma);
  if (!fits || !aligned) return std::nullopt;
  const std::int64_t vectors = params.columns / kVectorColumns;
  const int lanes = vectors <= 8 ? 8 : vectors <= 16 ? 16 : 32;
  const std::int64_t slots = (vectors + lanes - 1) / lanes;
  if (slots > 4) return std::nullopt;
  return SpanLayout{.lanes = lanes, .slots = static_cast<int>(slots)};
}

std::string refuse(const RmsNormProblem& problem) {
  return refuse_unless_sm80(problem.device);
}

void rms_norm(const RmsNormArgs& args, const Context& context) {
  const DeviceScope scope(args.gamma.device);
  const KvLayerView view =
      args.side == KvSide::key ? args.cache.key(args.layer) : args.cache.value(args.layer);
  const RmsNormParams params{.view = view,
                             .row_offsets = args.row_offsets.as<const std::uint32_t>(),
                             .gamma = args.gamma.as<const std::byte>(),
                             .gamma_dtype = args.gamma.dtype,
                             .columns = args.gamma.shape[0],
                             .token_spans = args.per_head ? view.num_heads : 1,
                             .epsilon = args.epsilon,
                             .weight_offset = args.weight_offset,
                             .multiply_before_cast = args.multiply_before_cast};
  if (view.batch == 0) return;
  const auto sms = static_cast<unsigned>(num_sms(args.gamma.device.index));
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (const auto layout = span_layout(params)) return launch_spans(params, *layout, sms, stream);
  launch_general(params, kBlocksPerSm * sms, stream);
}

}  // namespace quire::cuda::any::rms_norm
