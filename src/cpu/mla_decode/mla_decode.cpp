// SPDX-License-Identifier: Apache-2.0
// New rows finished → queries absorbed into the latent space → attention over the rows → raw
// outputs, rounded to q's dtype, through w_uv.
#include "cpu/mla_decode/mla_decode.h"

#include <algorithm>
#include <optional>

#include "cpu/attention/batch.h"
#include "cpu/attention/latent_batch.h"
#include "cpu/attention/latent_kernels.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/work_estimate.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {
namespace {

std::int64_t bytes_of(const TensorView& tensor) {
  return round_up_to_line(bytes_for(tensor.dtype, tensor.numel()));
}

TensorView shape_only(DType dtype, std::initializer_list<std::int64_t> shape) {
  return TensorView::contiguous(nullptr, dtype, shape);
}

// f16 has too small a range for absorbed queries: they stay f32.
DType absorbed_dtype(DType q_dtype) {
  return q_dtype == DType::bf16 ? DType::bf16 : DType::f32;
}

const std::byte* address_of(const TensorView& tensor, std::initializer_list<std::int64_t> index) {
  return tensor.as<const std::byte>() + bytes_for(tensor.dtype, tensor.offset(index));
}

// The first columns of x [tokens, heads, …] · weight(head)ᵀ [heads, columns, depth] → the first
// columns of out.
ProjectionItem projection(const TensorView& x, const TensorView& weight,
                          const std::optional<TensorView>& scale, const TensorView& out,
                          std::int64_t head) {
  return {.x = address_of(x, {0, head, 0}),
          .x_dtype = x.dtype,
          .x_stride = bytes_for(x.dtype, x.strides[0]),
          .num_rows = x.shape[0],
          .depth = weight.shape[2],
          .weight = address_of(weight, {head, 0, 0}),
          .weight_dtype = weight.dtype,
          .column_stride = weight.strides[1],
          .depth_stride = weight.strides[2],
          .num_columns = weight.shape[1],
          .scale = scale ? scale->as<const float>() + scale->offset({head, 0, 0}) : nullptr,
          .scale_column_stride = scale ? scale->strides[1] : 0,
          .scale_depth_stride = scale ? scale->strides[2] : 0,
          .out = const_cast<std::byte*>(address_of(out, {0, head, 0})),
          .out_dtype = out.dtype,
          .out_stride = bytes_for(out.dtype, out.strides[0])};
}

class DecodeRun {
 public:
  DecodeRun(const MlaDecodeArgs& args, const Context& context, Target target)
      : args_(args),
        workers_(context),
        target_(target),
        kernels_(latent_kernels(target)),
        keys_(args.cache.key(args.layer).with_keys(args.key_lengths)),
        latents_{.row_offsets = args.row_offsets,
                 .rows = keys_,
                 .freqs_cis = args.freqs_cis,
                 .kv_norm_gamma = args.kv_norm_gamma,
                 .kv = args.kv,
                 .epsilon = args.epsilon},
        batch_{.q = args.q,
               .row_offsets = args.row_offsets,
               .keys = keys_,
               .mask = args.mask,
               .score = {.scale = args.scale, .softcap = 0.0f},
               .sinks = args.sinks,
               .out = args.out,
               .lse = args.lse} {}

  void run() {
    if (args_.q.shape[0] == 0) return;
    finish_new_rows(latents_, workers_, target_);
    const std::int64_t tokens = args_.q.shape[0];
    const std::int64_t heads = args_.q.shape[1];
    const std::int64_t latent = args_.w_uk ? args_.w_uk->shape[1] : args_.out.shape[2];
    const bool changes_q = args_.w_uk.has_value() || args_.freqs_cis.has_value();
    if (changes_q) {
      batch_.q = shape_only(absorbed_dtype(args_.q.dtype), {tokens, heads, args_.cache.head_dim()});
    }
    if (args_.w_uv) batch_.out = shape_only(args_.q.dtype, {tokens, heads, latent});

    BatchAttention attention(batch_, workers_, target_);
    const std::int64_t q_bytes = changes_q ? bytes_of(batch_.q) : 0;
    const std::int64_t raw_bytes = args_.w_uv ? bytes_of(batch_.out) : 0;
    const std::int64_t worker_bytes = projection_bytes();
    std::byte* scratch = thread_scratch(
        q_bytes + raw_bytes + std::max(attention.scratch_bytes(), worker_bytes * workers_.count));
    if (changes_q) batch_.q.data = scratch;
    if (args_.w_uv) batch_.out.data = scratch + q_bytes;
    std::byte* rest = scratch + q_bytes + raw_bytes;

    if (args_.w_uk) project(args_.q, *args_.w_uk, args_.w_uk_scale, batch_.q, rest, worker_bytes);
    if (changes_q) rotate(latent);
    attention.run(rest);
    if (args_.w_uv) {
      project(batch_.out, *args_.w_uv, args_.w_uv_scale, args_.out, rest, worker_bytes);
    }
  }

 private:
  // What the scratch of one worker's projection takes, at most.
  std::int64_t projection_bytes() const {
    if (!args_.w_uk) return 0;
    const ProjectionItem absorb = projection(args_.q, *args_.w_uk, args_.w_uk_scale, batch_.q, 0);
    const ProjectionItem expand =
        projection(batch_.out, *args_.w_uv, args_.w_uv_scale, args_.out, 0);
    return round_up_to_line(std::max(kernels_.projection_scratch_bytes(absorb),
                                     kernels_.projection_scratch_bytes(expand)));
  }

  void project(const TensorView& x, const TensorView& weight,
               const std::optional<TensorView>& scale, const TensorView& out, std::byte* scratch,
               std::int64_t worker_bytes) const {
    const std::int64_t numbers = weight.shape[0] * weight.shape[1] * weight.shape[2];
    const double nanoseconds =
        nanoseconds_of_bytes(static_cast<double>(bytes_for(weight.dtype, numbers))) +
        static_cast<double>(x.shape[0] * numbers) / products_per_nanosecond(target_, x.dtype);
    parallel_for(x.shape[1], workers_.for_nanoseconds(nanoseconds),
                 [&](std::int64_t head, int worker) {
                   kernels_.project(projection(x, weight, scale, out, head),
                                    scratch + worker * worker_bytes);
                 });
  }

  // The rope columns of q', and all others where no w_uk wrote them.
  void rotate(std::int64_t latent) const {
    const std::int64_t copied = args_.w_uk ? 0 : latent;
    if (args_.freqs_cis) {
      rotate_queries(latents_, args_.q, batch_.q, copied, workers_, target_);
      return;
    }
    const std::int64_t rope = args_.cache.head_dim() - latent;
    const Workers workers =
        workers_.for_nanoseconds(nanoseconds_of_bytes(static_cast<double>(bytes_of(batch_.q))));
    parallel_for(args_.q.shape[0], workers, [&](std::int64_t token, int) {
      kernels_.rotate({.q = address_of(args_.q, {token, 0, args_.q.shape[2] - rope}),
                       .out = const_cast<std::byte*>(address_of(batch_.q, {token, 0, latent})),
                       .q_dtype = args_.q.dtype,
                       .out_dtype = batch_.q.dtype,
                       .q_head_stride = bytes_for(args_.q.dtype, args_.q.strides[1]),
                       .out_head_stride = bytes_for(batch_.q.dtype, batch_.q.strides[1]),
                       .num_heads = args_.q.shape[1],
                       .copied = rope,
                       .rope = 0,
                       .freqs = nullptr,
                       .freqs_dtype = DType::f32});
    });
  }

  const MlaDecodeArgs& args_;
  Workers workers_;
  Target target_;
  const LatentKernels& kernels_;
  PagedKvOperand keys_;
  NewLatents latents_;
  AttentionBatch batch_;  // its q and out are scratch where weights or frequencies change them
};

}  // namespace

void mla_decode(const MlaDecodeArgs& args, const Context& context, Target target) {
  DecodeRun(args, context, target).run();
}

}  // namespace quire::cpu
