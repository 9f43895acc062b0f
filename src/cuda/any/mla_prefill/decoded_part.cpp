// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/mla_prefill/decoded_part.h"

#include <algorithm>

#include "core/split_kv_b_proj.h"
#include "cuda/any/mla_decode/launch.h"
#include "cuda/any/mla_prefill/picked_rows.h"
#include "cuda/sm90/mla_decode/launch.h"

namespace quire::cuda::any::mla_prefill {
namespace {

struct PartScratch {
  std::uint32_t* offsets;  // [batch + 1]
  std::byte* q;            // [rows, heads, nope + rope], of q's dtype
  std::byte* out;          // [rows, heads, value], of out's dtype
  float* lse;              // [rows, heads]
};

std::int64_t most_rows(const MlaPrefillProblem& problem) {
  return std::min(problem.ragged.tokens, problem.ragged.batch * problem.decode_tokens);
}

PartScratch carve_part(Carver& carver, const MlaPrefillProblem& problem) {
  const std::int64_t rows = most_rows(problem) * problem.heads;
  const std::int64_t width = problem.nope_dim + problem.rope_dim;
  return {.offsets = carver.take<std::uint32_t>(problem.ragged.batch + 1),
          .q = carver.take<std::byte>(bytes_for(problem.q_dtype, rows * width)),
          .out = carver.take<std::byte>(bytes_for(problem.out_dtype, rows * problem.value_dim)),
          .lse = carver.take<float>(rows)};
}

// What mla_decode is asked. Rows of q and out are in scratch, as aligned as they can be.
MlaDecodeProblem decode_problem(const MlaPrefillProblem& problem) {
  MlaDecodeProblem decode{.device = problem.device,
                          .ragged = problem.ragged,
                          .cache = problem.cache,
                          .heads = problem.heads,
                          .latent_dim = problem.latent_dim,
                          .nope_dim = problem.nope_dim,
                          .rope_dim = problem.rope_dim,
                          .value_dim = problem.value_dim,
                          .scale = problem.scale,
                          .q_dtype = problem.q_dtype,
                          .out_dtype = problem.out_dtype,
                          .weight_dtype = problem.weight_dtype,
                          .mask = problem.mask,
                          .finishes_rows = false,
                          .batch_invariant = problem.batch_invariant,
                          .alignment = problem.cache_alignment};
  decode.ragged.tokens = most_rows(problem);
  decode.ragged.max_new_tokens = problem.decode_tokens;
  return decode;
}

bool is_fast(const MlaDecodeProblem& problem) {
  return sm90::mla_decode::refuse_mla_decode_bf16(problem).empty() ||
         sm90::mla_decode::refuse_mla_decode_fp8(problem).empty();
}

// Any strides: the widest vectors that everything is aligned to.
int vector_bytes(const HeadRowsView& rows, std::int64_t row_bytes) {
  const auto bits = static_cast<std::uint64_t>(rows.token_bytes | rows.head_bytes | row_bytes) |
                    reinterpret_cast<std::uintptr_t>(rows.data);
  for (const int bytes : {16, 4, 2}) {
    if (bits % static_cast<unsigned>(bytes) == 0) return bytes;
  }
  return 1;
}

HeadRowsView head_rows(const TensorView& tensor) {
  return {.data = tensor.as<std::byte>(),
          .token_bytes = bytes_for(tensor.dtype, tensor.strides[0]),
          .head_bytes = bytes_for(tensor.dtype, tensor.strides[1])};
}

CopyPickedParams copy_of(const PickedBatch& batch, const TensorView& ragged,
                         const TensorView& dense) {
  const std::int64_t width = ragged.rank == 3 ? ragged.shape[2] : 1;
  const HeadRowsView rows = head_rows(ragged);
  const std::int64_t row_bytes = bytes_for(ragged.dtype, width);
  return {.batch = batch,
          .ragged = rows,
          .dense = head_rows(dense),
          .heads = ragged.shape[1],
          .row_bytes = row_bytes,
          .vector_bytes = vector_bytes(rows, row_bytes)};
}

MlaDecodeArgs decode_args(const MlaPrefillArgs& args, const MlaPrefillProblem& problem,
                          const PartScratch& scratch) {
  const std::int64_t rows = most_rows(problem);
  const SplitKvBProj weights =
      split_kv_b_proj(args.kv_b_proj, problem.heads, problem.nope_dim, args.kv_b_proj_scale);
  const auto dense = [&](void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
    return TensorView::contiguous(data, dtype, shape, args.q.device);
  };
  MlaDecodeArgs decode{
      .q = dense(scratch.q, args.q.dtype, {rows, problem.heads, args.q.shape[2]}),
      .row_offsets = dense(scratch.offsets, DType::u32, {problem.ragged.batch + 1}),
      .cache = args.cache,
      .layer = args.layer,
      .w_uk = weights.w_uk,
      .w_uk_scale = weights.w_uk_scale,
      .w_uv = weights.w_uv,
      .w_uv_scale = weights.w_uv_scale,
      .scale = args.scale,
      .mask = args.mask,
      .sinks = args.sinks,
      .out = dense(scratch.out, args.out.dtype, {rows, problem.heads, problem.value_dim}),
      .batch_invariant = problem.batch_invariant};
  decode.cache.max_seq_length = static_cast<std::uint32_t>(problem.decode_tokens);
  if (args.lse.has_value()) decode.lse = dense(scratch.lse, DType::f32, {rows, problem.heads});
  return decode;
}

KernelPtr<MlaDecodeArgs> prepare_decode(const MlaDecodeProblem& problem, DecodeKernels kernels) {
  return kernels == DecodeKernels::fastest && is_fast(problem)
             ? sm90::mla_decode::prepare_mla_decode(problem)
             : any::mla_decode::prepare_general(problem);
}

}  // namespace

DecodedPart::DecodedPart(const MlaPrefillProblem& problem, DecodeKernels kernels)
    : problem_(problem) {
  if (problem.decode_tokens == 0) return;
  Carver counter;
  static_cast<void>(carve_part(counter, problem));
  kernel_ = prepare_decode(decode_problem(problem), kernels);
  workspace_bytes_ = counter.bytes() + kernel_->workspace_bytes();
}

void DecodedPart::run(const MlaPrefillArgs& args, const Context& context,
                      std::byte* workspace) const {
  if (kernel_ == nullptr || most_rows(problem_) == 0) return;
  Carver carver(workspace);
  const PartScratch scratch = carve_part(carver, problem_);
  const MlaDecodeArgs decode = decode_args(args, problem_, scratch);
  const PickedBatch batch{.row_offsets = args.row_offsets.as<const std::uint32_t>(),
                          .picked_offsets = scratch.offsets,
                          .batch = problem_.ragged.batch,
                          .max_tokens = problem_.decode_tokens,
                          .rows = most_rows(problem_)};
  auto* const stream = static_cast<cudaStream_t>(context.stream);
  launch_pick_offsets(batch, stream);
  launch_pick_rows(copy_of(batch, args.q, decode.q), stream);
  Context inner = context;
  inner.workspace = workspace + carver.bytes();
  kernel_->run(decode, inner);
  launch_put_back_rows(copy_of(batch, args.out, decode.out), stream);
  if (args.lse.has_value()) launch_put_back_rows(copy_of(batch, *args.lse, *decode.lse), stream);
}

}  // namespace quire::cuda::any::mla_prefill
