// SPDX-License-Identifier: Apache-2.0
#include "cpu/rms_norm/rms_norm.h"

#include <vector>

#include "cpu/rms_norm/kernels.h"
#include "cpu/rows/new_tokens.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {

void rms_norm(const RmsNormArgs& args, const Context& context, Target target) {
  const PagedKvOperand rows(args.side == KvSide::key ? args.cache.key(args.layer)
                                                     : args.cache.value(args.layer));
  const RowFormat format = rows.layout().format;
  const KvHeads heads = rows.heads();
  const RmsNormKernels& kernels = rms_norm_kernels(target);
  const std::int64_t num_gammas = args.gamma.shape[0];
  std::vector<float> gamma(static_cast<std::size_t>(num_gammas));
  kernels.widen_gamma(args.gamma.as<const std::byte>(), args.gamma.dtype, num_gammas,
                      args.weight_offset, gamma.data());
  const std::int64_t num_columns = args.per_head ? num_gammas : format.width();
  const RmsNormJob job{.columns = segments_of(format, 0, num_columns),
                       .num_columns = num_columns,
                       .num_heads = heads.count,
                       .head_stride = heads.row_stride_bytes,
                       .heads_per_mean = args.per_head ? 1 : heads.count,
                       .gamma = gamma.data(),
                       .gamma_dtype = args.gamma.dtype,
                       .multiply_before_cast = args.multiply_before_cast,
                       .epsilon = args.epsilon};
  for_token_blocks(NewTokens(args.row_offsets, rows), 2 * heads.count * format.row_bytes, context,
                   [&](std::span<const TokenPlace> places, int) {
                     kernels.normalize(job, places.data(),
                                       static_cast<std::int64_t>(places.size()));
                   });
}

}  // namespace quire::cpu
