// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/latent_batch.h"

#include <algorithm>
#include <vector>

#include "cpu/attention/latent_kernels.h"
#include "cpu/attention/paged_rows.h"
#include "cpu/attention/work_list.h"
#include "cpu/runtime/scratch.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kTokensPerItem = 16;

// A new token: its row of q, its sequence and its absolute position.
struct NewToken {
  std::int64_t index;
  std::int64_t sequence;
  std::int64_t position;
};

std::vector<NewToken> new_tokens(const NewLatents& latents) {
  std::vector<NewToken> tokens;
  std::int64_t sequence = 0;
  for (const SequenceSpan& span : sequence_spans(latents.row_offsets, latents.cache)) {
    for (std::int64_t t = 0; t < span.num_tokens; ++t) {
      tokens.push_back({span.first_token + t, sequence, span.cache_length + t});
    }
    ++sequence;
  }
  return tokens;
}

const std::byte* freqs_at(const NewLatents& latents, std::int64_t position) {
  const TensorView& freqs = *latents.freqs_cis;
  return freqs.as<const std::byte>() + bytes_for(freqs.dtype, freqs.offset({position, 0}));
}

LatentRow latent_row(const NewLatents& latents, const KvLayerView& view, const NewToken& token) {
  RowAddress address{};
  PagedRows::locate_keys(view, token.sequence, 0, token.position, 1, &address);
  const std::byte* raw = nullptr;
  if (latents.kv) {
    raw = latents.kv->as<const std::byte>() +
          bytes_for(latents.kv->dtype, latents.kv->offset({token.index, 0}));
  }
  // The cache is the op's to write; addresses are const because attention only reads.
  return {.raw = raw,
          .row = const_cast<std::byte*>(address.row),
          .plane = const_cast<std::byte*>(address.plane),
          .freqs = freqs_at(latents, token.position)};
}

}  // namespace

void finish_new_rows(const NewLatents& latents, const Workers& workers, Target target) {
  if (!latents.freqs_cis) return;
  const KvLayerView view = latents.cache.key(latents.layer);
  const RowEncoding encoding(view);
  const LatentKernels& kernels = latent_kernels(target);
  const std::vector<NewToken> tokens = new_tokens(latents);
  const FinishItem whole{.rows = nullptr,
                         .num_rows = 0,
                         .plan = encoding.plan(),
                         .raw_dtype = latents.kv ? latents.kv->dtype : DType::f32,
                         .latent = latents.kv_norm_gamma->shape[0],
                         .rope = latents.freqs_cis->shape[1],
                         .gamma = latents.kv_norm_gamma->as<const std::byte>(),
                         .gamma_dtype = latents.kv_norm_gamma->dtype,
                         .freqs_dtype = latents.freqs_cis->dtype,
                         .epsilon = latents.epsilon};
  const auto num_tokens = static_cast<std::int64_t>(tokens.size());
  const std::int64_t num_items = (num_tokens + kTokensPerItem - 1) / kTokensPerItem;
  constexpr std::int64_t kCacheLine = 64;
  const std::int64_t bytes = kernels.finish_scratch_bytes(whole) / kCacheLine * kCacheLine;
  const std::int64_t worker_bytes = bytes + kCacheLine;
  std::byte* scratch = thread_scratch(worker_bytes * workers.count);
  parallel_for(num_items, workers, [&](std::int64_t index, int worker) {
    LatentRow rows[kTokensPerItem];
    FinishItem item = whole;
    item.rows = rows;
    const std::int64_t first = index * kTokensPerItem;
    item.num_rows = std::min(kTokensPerItem, num_tokens - first);
    for (std::int64_t i = 0; i < item.num_rows; ++i) {
      rows[i] = latent_row(latents, view, tokens[static_cast<std::size_t>(first + i)]);
    }
    kernels.finish(item, scratch + worker * worker_bytes);
  });
}

void rotate_queries(const NewLatents& latents, const TensorView& q, const TensorView& out,
                    std::int64_t copied, const Workers& workers, Target target) {
  const LatentKernels& kernels = latent_kernels(target);
  const std::vector<NewToken> tokens = new_tokens(latents);
  const std::int64_t rope = latents.freqs_cis->shape[1];
  const auto address = [&](const TensorView& tensor, std::int64_t token) {
    const std::int64_t column = tensor.shape[2] - rope - copied;
    return tensor.as<std::byte>() + bytes_for(tensor.dtype, tensor.offset({token, 0, column}));
  };
  parallel_for(static_cast<std::int64_t>(tokens.size()), workers, [&](std::int64_t i, int) {
    const NewToken& token = tokens[static_cast<std::size_t>(i)];
    kernels.rotate({.q = address(q, token.index),
                    .out = address(out, token.index),
                    .q_dtype = q.dtype,
                    .out_dtype = out.dtype,
                    .q_head_stride = bytes_for(q.dtype, q.strides[1]),
                    .out_head_stride = bytes_for(out.dtype, out.strides[1]),
                    .num_heads = q.shape[1],
                    .copied = copied,
                    .rope = rope,
                    .freqs = freqs_at(latents, token.position),
                    .freqs_dtype = latents.freqs_cis->dtype});
  });
}

}  // namespace quire::cpu
