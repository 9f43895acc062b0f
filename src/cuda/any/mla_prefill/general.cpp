// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/any/mla_prefill/decoded_part.h"
#include "cuda/any/mla_prefill/launch.h"
#include "cuda/any/mla_prefill/params.h"
#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/mla/head_product.h"
#include "cuda/common/runtime/device_scope.h"

namespace quire::cuda::any::mla_prefill {

namespace {

class Prefill {
 public:
  Prefill(const MlaPrefillArgs& args, const Context& context)
      : args_(args),
        context_(context),
        stream_(static_cast<cudaStream_t>(context.stream)),
        sizes_(general_sizes(args)),
        view_(args.cache.key(args.layer)),
        chunks_(chunk_table(args.chunks)) {
    Carver carver(context.workspace);
    scratch_ = carve(carver, sizes_);
  }

  void run() {
    finish_rows(new_latent_rows(args_), scratch_.new_rows, context_);
    if (args_.freqs_cis.has_value()) {
      launch_rotate_queries(rotated_queries(args_, sizes_.rope, args_.q), stream_);
    }
    for (std::int64_t head = 0; head < sizes_.heads; head += sizes_.group()) {
      const std::int64_t heads = std::min(sizes_.group(), sizes_.heads - head);
      for (std::int64_t chunk = 0; chunk < sizes_.max_chunks; ++chunk) {
        gather(chunk);
        project(chunk, head, heads);
        attend(chunk, head, heads);
      }
    }
  }

 private:
  void gather(std::int64_t chunk) const {
    launch_gather({.cache = row_reader(view_),
                   .row_offsets = row_offsets(),
                   .chunks = chunks_,
                   .chunk = chunk,
                   .rows = sizes_.rows,
                   .latent = static_cast<std::int32_t>(sizes_.latent),
                   .rounded = args_.q.dtype,
                   .fp8 = args_.kv_b_proj.dtype,
                   .latents = scratch_.latents},
                  stream_);
  }

  PlainRows projected_rows(std::int64_t heads) const {
    return plain_rows(TensorView::contiguous(scratch_.projected, args_.q.dtype,
                                             {1, heads, sizes_.projected_width()}, args_.q.device));
  }

  // One matrix of all heads, whose blocks of scales may span two of them.
  HeadWeights weights_from(std::int64_t head) const {
    const TensorView& weight = args_.kv_b_proj;
    const std::int64_t first_row = head * sizes_.projected_width();
    HeadWeights weights{.data = weight.as<const std::byte>() +
                                bytes_for(weight.dtype, first_row * weight.strides[0]),
                        .dtype = weight.dtype,
                        .head_stride = sizes_.projected_width() * weight.strides[0],
                        .output_stride = weight.strides[0],
                        .column_stride = 1};
    if (args_.kv_b_proj_scale.has_value()) {
      weights.scales = args_.kv_b_proj_scale->as<const float>();
      weights.scale_output_stride = args_.kv_b_proj_scale->strides[0];
      weights.scale_column_stride = args_.kv_b_proj_scale->strides[1];
      weights.scale_first_row = first_row;
      weights.scale_head_rows = sizes_.projected_width();
    }
    return weights;
  }

  void project(std::int64_t chunk, std::int64_t head, std::int64_t heads) const {
    PlainRows latents = plain_rows(TensorView::contiguous(scratch_.latents, DType::f32,
                                                          {1, 1, sizes_.latent}, args_.q.device));
    latents.head_bytes = 0;
    const PlainRows projected = projected_rows(heads);
    launch_head_product({.x = latents,
                         .weights = weights_from(head),
                         .rows = sizes_.rows,
                         .live_rows = chunks_.buffer_lengths + chunk * chunks_.lengths_stride,
                         .heads = static_cast<std::int32_t>(heads),
                         .outputs = static_cast<std::int32_t>(sizes_.projected_width()),
                         .y = scratch_.projected,
                         .y_dtype = args_.q.dtype,
                         .y_row_bytes = projected.token_bytes,
                         .y_head_bytes = projected.head_bytes},
                        stream_);
  }

  ChunkPlace place_of(std::int64_t chunk) const {
    const bool is_first = chunk == 0;
    const bool is_last = chunk == sizes_.max_chunks - 1;
    if (is_first) return is_last ? ChunkPlace::only : ChunkPlace::first;
    return is_last ? ChunkPlace::last : ChunkPlace::middle;
  }

  void attend(std::int64_t chunk, std::int64_t head, std::int64_t heads) const {
    PlainRows q = plain_rows(args_.q);
    q.data += head * q.head_bytes;
    launch_chunk_attention({.q = q,
                            .tokens = sizes_.tokens,
                            .heads = static_cast<std::int32_t>(heads),
                            .first_head = static_cast<std::int32_t>(head),
                            .row_offsets = row_offsets(),
                            .cache = row_reader(view_),
                            .latent = static_cast<std::int32_t>(sizes_.latent),
                            .nope = static_cast<std::int32_t>(sizes_.nope),
                            .projected = projected_rows(heads),
                            .rows = sizes_.rows,
                            .chunks = chunks_,
                            .chunk = chunk,
                            .place = place_of(chunk),
                            .score = {.scale = static_cast<float>(args_.scale),
                                      .softcap = static_cast<float>(args_.softcap),
                                      .alibi_slopes = args_.alibi_slopes.has_value()
                                                          ? args_.alibi_slopes->as<const float>()
                                                          : nullptr},
                            .mask = mask_program(args_.mask),
                            .state = scratch_.state,
                            .output = attend_output(args_.out, args_.lse, args_.sinks)},
                           stream_);
  }

  const std::uint32_t* row_offsets() const { return args_.row_offsets.as<const std::uint32_t>(); }

  const MlaPrefillArgs& args_;
  const Context& context_;
  cudaStream_t stream_;
  GeneralSizes sizes_;
  KvLayerView view_;
  ChunkTable chunks_;
  GeneralScratch scratch_{};
};

class GeneralKernel final : public Kernel<MlaPrefillArgs> {
 public:
  explicit GeneralKernel(const MlaPrefillProblem& problem)
      : decoded_(problem, DecodeKernels::general) {
    Carver counter;
    static_cast<void>(carve(counter, general_sizes(problem)));
    prefill_bytes_ = counter.bytes();
  }

  std::int64_t workspace_bytes() const override {
    return prefill_bytes_ + decoded_.workspace_bytes();
  }

  void run(const MlaPrefillArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
    const DeviceScope scope(args.q.device);
    Prefill(args, context).run();
    decoded_.run(args, context, static_cast<std::byte*>(context.workspace) + prefill_bytes_);
  }

 private:
  DecodedPart decoded_;
  std::int64_t prefill_bytes_;
};

}  // namespace

KernelPtr<MlaPrefillArgs> prepare_general(const MlaPrefillProblem& problem) {
  return std::make_unique<const GeneralKernel>(problem);
}

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

ChunkTable chunk_table(const MlaPrefillChunks& chunks) {
  return {.buffer_row_offsets = chunks.buffer_row_offsets.as<std::uint32_t>(),
          .buffer_chunk_stride = chunks.buffer_row_offsets.strides[0],
          .buffer_sequence_stride = chunks.buffer_row_offsets.strides[1],
          .cache_offsets = chunks.cache_offsets.as<std::uint32_t>(),
          .cache_chunk_stride = chunks.cache_offsets.strides[0],
          .cache_sequence_stride = chunks.cache_offsets.strides[1],
          .buffer_lengths = chunks.buffer_lengths.as<std::int32_t>(),
          .lengths_stride = chunks.buffer_lengths.strides[0],
          .max_chunks = chunks.buffer_lengths.shape[0],
          .buffer_tokens = chunks.buffer_tokens,
          .decode_tokens = chunks.decode_tokens};
}

void mla_prefill_plan(const MlaPrefillPlanArgs& args, const Context& context) {
  const DeviceScope scope(args.row_offsets.device);
  const KvLayerView view = args.cache.key(args.layer);
  launch_prefill_plan({.chunks = chunk_table(args.chunks),
                       .row_offsets = args.row_offsets.as<const std::uint32_t>(),
                       .cache_lengths = view.cache_lengths,
                       .batch = view.batch,
                       .page_size = view.page_size},
                      static_cast<cudaStream_t>(context.stream));
}

}  // namespace quire::cuda::any::mla_prefill
