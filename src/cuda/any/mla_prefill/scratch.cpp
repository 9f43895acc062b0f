// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/mla_prefill/scratch.h"

#include <algorithm>

namespace quire::cuda::any::mla_prefill {
namespace {

constexpr std::int64_t kProjectedBytes = std::int64_t{128} << 20;  // K and V of a group of heads
constexpr std::int64_t kBlockColumns = 128;                        // value columns of a block

std::int64_t chunk_rows(std::int64_t buffer_tokens, std::int64_t batch, std::int64_t max_pages,
                        std::int64_t page_size) {
  return std::min(buffer_tokens, batch * max_pages * page_size);
}

}  // namespace

std::int64_t GeneralSizes::group() const {
  const std::int64_t head_bytes =
      std::max<std::int64_t>(1, rows * projected_width() * element_bytes);
  return std::clamp<std::int64_t>(kProjectedBytes / head_bytes, 1, heads);
}

GeneralSizes general_sizes(const MlaPrefillArgs& args) {
  const std::int64_t heads = args.q.shape[1];
  const std::int64_t latent = args.kv_b_proj.shape[1];
  const std::int64_t nope = args.kv_b_proj.shape[0] / heads - args.out.shape[2];
  return {.tokens = args.q.shape[0],
          .heads = heads,
          .latent = latent,
          .rope = args.q.shape[2] - nope,
          .nope = nope,
          .value = args.out.shape[2],
          .rows = chunk_rows(args.chunks.buffer_tokens, args.cache.batch(), args.cache.max_pages(),
                             args.cache.page_size()),
          .max_chunks = args.chunks.buffer_lengths.shape[0],
          .element_bytes = bytes_for(args.q.dtype, 1)};
}
GeneralSizes general_sizes(const MlaPrefillProblem& problem) {
  return {.tokens = problem.ragged.tokens,
          .heads = problem.heads,
          .latent = problem.latent_dim,
          .rope = problem.rope_dim,
          .nope = problem.nope_dim,
          .value = problem.value_dim,
          .rows = chunk_rows(problem.buffer_tokens, problem.ragged.batch, problem.cache.max_pages,
                             problem.cache.page_size),
          .max_chunks = problem.max_chunks,
          .element_bytes = bytes_for(problem.q_dtype, 1)};
}

GeneralScratch carve(Carver& carver, const GeneralSizes& sizes) {
  const std::int64_t kept = sizes.max_chunks > 1 ? sizes.tokens * sizes.group() : 0;
  const std::int64_t blocks = (sizes.value + kBlockColumns - 1) / kBlockColumns;
  GeneralScratch scratch{};
  scratch.new_rows = carver.take<float>(sizes.tokens * (sizes.latent + sizes.rope));
  scratch.latents = carver.take<float>(sizes.rows * sizes.latent);
  scratch.projected = carver.take<std::byte>(sizes.rows * sizes.group() * sizes.projected_width() *
                                             sizes.element_bytes);
  scratch.state.sums = carver.take<float>(kept * sizes.value);
  scratch.state.rows = carver.take<float>(kept * blocks * 2);
  return scratch;
}

}  // namespace quire::cuda::any::mla_prefill
