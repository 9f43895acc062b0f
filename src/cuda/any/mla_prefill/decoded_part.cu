// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/mla_prefill/decoded_part.h"

#include <algorithm>

#include "core/split_kv_b_proj.h"
#include "cuda/any/mla_decode/launch.h"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/mla_decode/launch.h"

namespace quire::cuda::any::mla_prefill {
namespace {

// Rows of some sequences of a ragged batch, picked into a dense array and put back.
struct PickedBatch {
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  std::uint32_t* picked_offsets = nullptr;  // [batch + 1]: a sequence that is not picked is empty
  std::int64_t batch = 0;
  std::int64_t max_tokens = 0;  // sequences of more new tokens are not picked
  std::int64_t rows = 0;        // of the dense array, at least as many as can be picked
};

// Rows of [tokens, heads, row_bytes], any strides in bytes.
struct HeadRowsView {
  std::byte* data = nullptr;
  std::int64_t token_bytes = 0;
  std::int64_t head_bytes = 0;
};

struct CopyPickedParams {
  PickedBatch batch;
  HeadRowsView ragged;  // rows of the batch
  HeadRowsView dense;   // picked rows
  std::int64_t heads = 0;
  std::int64_t row_bytes = 0;
  int vector_bytes = 1;  // 16, 4, 2 or 1: divides every address, stride and row_bytes
};

constexpr int kThreads = 256;

__device__ std::uint32_t picked_tokens(const PickedBatch& batch, std::int64_t sequence) {
  if (sequence >= batch.batch) return 0;
  const std::uint32_t tokens = batch.row_offsets[sequence + 1] - batch.row_offsets[sequence];
  return tokens <= batch.max_tokens ? tokens : 0;
}

// One warp: a running sum over the sequences, 32 at a time.
__global__ void __launch_bounds__(32) pick_offsets(const __grid_constant__ PickedBatch batch) {
  const int lane = static_cast<int>(threadIdx.x);
  std::uint32_t before = 0;
  for (std::int64_t first = 0; first < batch.batch; first += 32) {
    const std::uint32_t sum = sum_up_to_lane(picked_tokens(batch, first + lane), lane);
    if (first + lane < batch.batch) batch.picked_offsets[first + lane + 1] = before + sum;
    before += __shfl_sync(~0u, sum, 31);
  }
  if (lane == 0) batch.picked_offsets[0] = 0;
}

// Where row `picked` of the dense array stands in the batch; -1: it is none's.
__device__ std::int64_t token_of(const PickedBatch& batch, std::int64_t picked) {
  if (picked >= batch.picked_offsets[batch.batch]) return -1;
  const int sequence = sequence_of(batch.picked_offsets, static_cast<int>(batch.batch),
                                   static_cast<std::uint32_t>(picked));
  return batch.row_offsets[sequence] + (picked - batch.picked_offsets[sequence]);
}

enum class Direction : std::uint8_t { pick, put_back };

// A block per picked token.
template <typename Vector, Direction kDirection>
__global__ void __launch_bounds__(kThreads)
    copy_rows(const __grid_constant__ CopyPickedParams params) {
  const std::int64_t token = token_of(params.batch, blockIdx.x);
  if (token < 0) return;
  const std::int64_t vectors = params.row_bytes / std::int64_t{sizeof(Vector)};
  std::byte* ragged = params.ragged.data + token * params.ragged.token_bytes;
  std::byte* dense = params.dense.data + blockIdx.x * params.dense.token_bytes;
  for (std::int64_t i = threadIdx.x; i < params.heads * vectors; i += kThreads) {
    const std::int64_t head = i / vectors;
    const std::int64_t column = i % vectors;
    auto* in_batch = reinterpret_cast<Vector*>(ragged + head * params.ragged.head_bytes) + column;
    auto* in_dense = reinterpret_cast<Vector*>(dense + head * params.dense.head_bytes) + column;
    if constexpr (kDirection == Direction::pick) {
      *in_dense = *in_batch;
    } else {
      *in_batch = *in_dense;
    }
  }
}

template <Direction kDirection> auto kernel_of(int vector_bytes) {
  if (vector_bytes == 16) return copy_rows<uint4, kDirection>;
  if (vector_bytes == 4) return copy_rows<std::uint32_t, kDirection>;
  return vector_bytes == 2 ? copy_rows<std::uint16_t, kDirection>
                           : copy_rows<std::uint8_t, kDirection>;
}

template <Direction kDirection>
void launch_copy(const CopyPickedParams& params, cudaStream_t stream) {
  launch(kernel_of<kDirection>(params.vector_bytes),
         {.grid = dim3(num_blocks(params.batch.rows, 1)), .block = dim3(kThreads)}, stream, params);
}

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
  launch(pick_offsets, {.grid = dim3(1), .block = dim3(32)}, stream, batch);
  launch_copy<Direction::pick>(copy_of(batch, args.q, decode.q), stream);
  Context inner = context;
  inner.workspace = workspace + carver.bytes();
  kernel_->run(decode, inner);
  launch_copy<Direction::put_back>(copy_of(batch, args.out, decode.out), stream);
  if (args.lse.has_value())
    launch_copy<Direction::put_back>(copy_of(batch, *args.lse, *decode.lse), stream);
}

}  // namespace quire::cuda::any::mla_prefill
