// SPDX-License-Identifier: Apache-2.0
#include "cpu/flash_attention/flash_attention.h"

#include <cmath>

#include "cpu/attention/batch.h"
#include "cpu/runtime/scratch.h"

namespace quire::cpu {

void flash_attention(const FlashAttentionArgs& args, const Context& context, Target target) {
  const double scale = args.scale.value_or(1.0 / std::sqrt(static_cast<double>(args.q.shape[2])));
  const AttentionBatch batch{.q = args.q,
                             .row_offsets = args.row_offsets,
                             .cache = args.cache,
                             .layer = args.layer,
                             .mask = args.mask,
                             .score = {.scale = scale, .softcap = static_cast<float>(args.softcap)},
                             .slopes = args.alibi_slopes,
                             .sinks = args.sinks,
                             .out = args.out,
                             .lse = args.lse};
  BatchAttention attention(batch, context, target);
  attention.run(thread_scratch(attention.scratch_bytes()));
}

}  // namespace quire::cpu
