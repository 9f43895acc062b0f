// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/mla_decode/launch.h"
#include "cuda/common/general_attention/paged_attention.h"
#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/mla/head_product.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_scope.h"

namespace quire::cuda::any::mla_decode {
namespace {

struct Sizes {
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t latent;
  std::int64_t nope;  // 0: q is absorbed
  std::int64_t rope;

  std::int64_t width() const { return latent + rope; }
};

struct Scratch {
  float* rows;      // [tokens, latent + rope]
  float* nope;      // [tokens, heads, nope], as fp8 weights read it
  float* absorbed;  // q' [tokens, heads, latent + rope]
  float* raw;       // [tokens, heads, latent], of q's dtype; then f32, as fp8 weights read it
  float* rounded;
};

Scratch carve(Carver& carver, const Sizes& sizes) {
  const std::int64_t rows = sizes.tokens * sizes.heads;
  const bool has_weights = sizes.nope > 0;
  return {.rows = carver.take<float>(sizes.tokens * sizes.width()),
          .nope = carver.take<float>(rows * sizes.nope),
          .absorbed = carver.take<float>(rows * sizes.width()),
          .raw = carver.take<float>(has_weights ? rows * sizes.latent : 0),
          .rounded = carver.take<float>(has_weights ? rows * sizes.latent : 0)};
}

Sizes sizes_of(const MlaDecodeArgs& args) {
  const std::int64_t width = args.cache.head_dim();
  const std::int64_t latent = args.w_uk.has_value() ? args.w_uk->shape[1] : args.out.shape[2];
  return {.tokens = args.q.shape[0],
          .heads = args.q.shape[1],
          .latent = latent,
          .nope = args.w_uk.has_value() ? args.w_uk->shape[2] : 0,
          .rope = width - latent};
}

PlainRows f32_rows(const float* data, std::int64_t heads, std::int64_t width, Device device) {
  return plain_rows(
      TensorView::contiguous(const_cast<float*>(data), DType::f32, {1, heads, width}, device));
}

class Decode {
 public:
  Decode(const MlaDecodeArgs& args, const Context& context)
      : args_(args),
        context_(context),
        stream_(static_cast<cudaStream_t>(context.stream)),
        sizes_(sizes_of(args)),
        view_(args.cache.key(args.layer).with_keys(args.key_lengths)) {
    Carver carver(context.workspace);
    scratch_ = carve(carver, sizes_);
  }

  void run() {
    finish_rows(new_latent_rows(args_), scratch_.rows, context_);
    attend(has_query_scratch() ? prepare_queries() : plain_rows(args_.q));
    if (args_.w_uv.has_value()) project_values();
  }

 private:
  // An absorbed q that is rotated already is read where it stands.
  bool has_query_scratch() const { return args_.w_uk.has_value() || args_.freqs_cis.has_value(); }

  PlainRows prepare_queries() const {
    const TensorView absorbed =
        TensorView::contiguous(scratch_.absorbed, DType::f32,
                               {sizes_.tokens, sizes_.heads, sizes_.width()}, args_.q.device);
    const std::int64_t plain_width = args_.w_uk.has_value() ? sizes_.nope : sizes_.latent;
    float* target = args_.w_uk.has_value() ? scratch_.nope : scratch_.absorbed;
    const std::int64_t stride = args_.w_uk.has_value() ? sizes_.nope : sizes_.width();
    launch_quantize_rows({.x = plain_rows(args_.q),
                          .tokens = sizes_.tokens,
                          .heads = static_cast<std::int32_t>(sizes_.heads),
                          .width = static_cast<std::int32_t>(plain_width),
                          .fp8 = args_.w_uk.has_value() ? args_.w_uk->dtype : DType::f32,
                          .y = target,
                          .y_token_stride = sizes_.heads * stride,
                          .y_head_stride = stride},
                         stream_);
    launch_rotate_queries(rotated_queries(args_, sizes_.rope, absorbed), stream_);
    if (args_.w_uk.has_value()) {
      const PlainRows nope = f32_rows(scratch_.nope, sizes_.heads, sizes_.nope, args_.q.device);
      launch_head_product(decode_product(args_, nope, *args_.w_uk, args_.w_uk_scale, absorbed),
                          stream_);
    }
    return plain_rows(absorbed);
  }

  // `raw` is rounded to q's dtype before w_uv.
  TensorView raw_view() const {
    return TensorView::contiguous(scratch_.raw, args_.q.dtype,
                                  {sizes_.tokens, sizes_.heads, sizes_.latent}, args_.q.device);
  }

  void attend(const PlainRows& queries) const {
    const TensorView out = args_.w_uv.has_value() ? raw_view() : args_.out;
    launch_paged_attention({.q = queries,
                            .tokens = sizes_.tokens,
                            .group = static_cast<std::int32_t>(sizes_.heads),
                            .row_offsets = row_offsets(),
                            .keys = row_reader(view_),
                            .values = row_reader(view_),
                            .score = {.scale = static_cast<float>(args_.scale)},
                            .mask = mask_program(args_.mask),
                            .output = attend_output(out, args_.lse, args_.sinks)},
                           stream_);
  }

  void project_values() const {
    PlainRows raw = plain_rows(raw_view());
    if (is_fp8(args_.w_uv->dtype)) {
      launch_quantize_rows({.x = raw,
                            .tokens = sizes_.tokens,
                            .heads = static_cast<std::int32_t>(sizes_.heads),
                            .width = static_cast<std::int32_t>(sizes_.latent),
                            .fp8 = args_.w_uv->dtype,
                            .y = scratch_.rounded,
                            .y_token_stride = sizes_.heads * sizes_.latent,
                            .y_head_stride = sizes_.latent},
                           stream_);
      raw = f32_rows(scratch_.rounded, sizes_.heads, sizes_.latent, args_.q.device);
    }
    launch_head_product(decode_product(args_, raw, *args_.w_uv, args_.w_uv_scale, args_.out),
                        stream_);
  }

  const std::uint32_t* row_offsets() const { return args_.row_offsets.as<const std::uint32_t>(); }

  const MlaDecodeArgs& args_;
  const Context& context_;
  cudaStream_t stream_;
  Sizes sizes_;
  KvLayerView view_;
  Scratch scratch_{};
};

std::int64_t workspace_bytes(const MlaDecodeProblem& problem) {
  Carver counter;
  static_cast<void>(carve(counter, {.tokens = problem.ragged.tokens,
                                    .heads = problem.heads,
                                    .latent = problem.latent_dim,
                                    .nope = problem.nope_dim,
                                    .rope = problem.rope_dim}));
  return counter.bytes();
}

void run(const MlaDecodeArgs& args, const Context& context) {
  const DeviceScope scope(args.q.device);
  if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
  Decode(args, context).run();
}

}  // namespace

KernelPtr<MlaDecodeArgs> prepare_general(const MlaDecodeProblem& problem) {
  return std::make_unique<const PlainKernel<MlaDecodeArgs>>(run, workspace_bytes(problem));
}

}  // namespace quire::cuda::any::mla_decode
