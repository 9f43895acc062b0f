// SPDX-License-Identifier: Apache-2.0
// A chunk's rows out of the pages, and what is rotated meanwhile.
#include <algorithm>

#include "cuda/any/rope/launch.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/sm90/mla_prefill/branch.h"
#include "cuda/sm90/mla_prefill/gather_plain.h"

namespace quire::cuda::sm90::mla_prefill {
namespace {

// Of q's rope columns that are rotated beside the gather where the projection can do the rest: what
// memory has time for. Measured with 64 MiB of them: all beside the projection 1138 µs for the branch,
// 8 MiB here 1130, 16 1126, 32 1132.
constexpr std::int64_t kGatherBytes = std::int64_t{16} << 20;

}  // namespace

// q's rope columns in place, beside the gather, which waits for memory but asks little of it, and
// beside the first projection if it can; the keys' are rotated with the new rows. Returns the gather's
// share.
QueryRotation Branch::share_rotation(ProjectionParams& first) const {
  if (!args_.freqs_cis.has_value()) return {};
  const QueryRotation all = rotation();
  first.rotation = all;
  const bool is_beside = rotates_queries(first);
  if (!is_beside) first.rotation = {};
  if (!gathers_plain()) {
    if (!is_beside) rotate_queries();
    return {};
  }
  QueryRotation share = all;
  if (is_beside) {
    const std::int64_t token_bytes = shape_.heads * BranchShape::kRope * BranchShape::kElementBytes;
    share.tokens = static_cast<int>(std::min<std::int64_t>(all.tokens, kGatherBytes / token_bytes));
    first.rotation.first_token = share.tokens;
    if (share.tokens == all.tokens) first.rotation = {};
  }
  return share.tokens == 0 ? QueryRotation{} : share;
}

void Branch::rotate_queries() const {
  any::rope::rope({.q = args_.q,
                   .row_offsets = args_.row_offsets,
                   .cache = args_.cache,
                   .layer = args_.layer,
                   .freqs_cis = *args_.freqs_cis,
                   .interleaved = true,
                   .rotate_key = false,
                   .out = args_.q},
                  context_);
}

QueryRotation Branch::rotation() const {
  const TensorView& q = args_.q;
  return {.q = q.as<std::byte>() + bytes_for(q.dtype, BranchShape::kNope),
          .token_bytes = bytes_for(q.dtype, q.strides[0]),
          .head_bytes = bytes_for(q.dtype, q.strides[1]),
          .tokens = static_cast<int>(shape_.tokens),
          .heads = static_cast<int>(shape_.heads),
          .row_offsets = row_offsets(),
          .cache_lengths = view_.cache_lengths,
          .batch = view_.batch,
          .angles = latent_angles(args_.freqs_cis)};
}

SpanParams Branch::spans() const {
  return {.chunks = chunks_,
          .row_offsets = row_offsets(),
          .cache_lengths = view_.cache_lengths,
          .batch = view_.batch,
          .groups = shape_.groups(),
          .spans = scratch_.spans};
}

// Rows of q's dtype as they stand, which a warp holds.
bool Branch::gathers_plain() const {
  return is_plain_layer(view_) && view_.row_format.parts[0].dtype == args_.q.dtype &&
         shape_.latent <= kMostPlainLatents;
}

// The gather finishes new rows on their way. Sequences that are decoded have none in the chunks.
bool Branch::finishes_rows() const {
  return args_.freqs_cis.has_value() && gathers_plain() && are_plain_rows(new_latent_rows(args_)) &&
         args_.chunks.decode_tokens == 0;
}

// Spans of the call before are in use until it has ended: a first kernel may not begin earlier.
void Branch::gather(std::int64_t chunk, const Heads& heads, const QueryRotation& rotation) const {
  const bool is_first = heads.first == 0 && chunk == 0;
  const bool follows_kernel = args_.freqs_cis.has_value() && !finishes_rows();
  const GatherRowsParams params{.cache = row_reader(view_),
                                .row_offsets = row_offsets(),
                                .chunks = chunks_,
                                .chunk = chunk,
                                .rows = shape_.rows,
                                .latent = static_cast<std::int32_t>(shape_.latent),
                                .rope = static_cast<std::int32_t>(BranchShape::kRope),
                                .dtype = args_.q.dtype,
                                .latents = scratch_.latents,
                                .scales = shape_.is_fp8 ? scratch_.latent_scales : nullptr,
                                .scale_stride = shape_.scale_columns(),
                                .rope_rows = scratch_.rope_rows,
                                .rope_dtype = has_fp8_products() ? DType::fp8_e4m3 : args_.q.dtype,
                                .spans = is_first ? spans() : SpanParams{},
                                .follows_kernel = !is_first || follows_kernel};
  if (!gathers_plain()) return launch_gather_rows(params, stream_);
  GatherPlainParams plain{
      .gather = params,
      .rotation = rotation,
      .rotating_blocks = rotation.q == nullptr ? 0 : num_sms(args_.q.device.index)};
  if (finishes_rows() && heads.first == 0) {
    const FinishPlainParams finish = finish_plain_params(new_latent_rows(args_));
    plain.new_rows = finish.how;
    plain.kv = finish.kv;
    plain.kv_token_bytes = finish.kv_token_bytes;
  }
  launch_gather_plain(plain, stream_);
}

}  // namespace quire::cuda::sm90::mla_prefill
