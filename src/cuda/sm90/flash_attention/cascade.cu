// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "core/batch_part.h"
#include "cuda/any/companions.h"
#include "cuda/common/paging/operand.h"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/flash_attention/launch.h"

namespace quire::cuda::sm90::flash_attention {
namespace {

// What the two parts of a cascade are called with, from the tensors of the batch.

// The shared pages as the table of one sequence.
struct PrefixTable {
  PageTable table{};
  std::uint32_t* pages = nullptr;  // [prefix_pages]; null: there are none
};

struct BatchSplit {
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  std::int64_t batch = 0;
  std::int64_t prefix_pages = 0;
  std::uint32_t prefix_keys = 0;
  // All tokens as one sequence: its offsets, and what it has cached before the shared keys end.
  std::uint32_t* prefix_offsets = nullptr;  // [2]
  std::uint32_t* prefix_length = nullptr;   // [1]
  PrefixTable keys;
  PrefixTable scales;
  std::uint32_t* own_lengths = nullptr;  // [batch]: without the shared keys
};

constexpr int kThreads = 128;

__device__ void copy_page(const PrefixTable& prefix, int sequence, int column) {
  if (prefix.pages == nullptr) return;
  prefix.pages[column] = PageCursor(prefix.table, sequence).page(column);
}

__global__ void __launch_bounds__(kThreads) split_batch(const __grid_constant__ BatchSplit split) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  // A sequence shorter than the prefix has no query (or breaks the op's contract): it has no own key.
  if (index < split.batch) {
    const std::uint32_t cached = split.cache_lengths[index];
    split.own_lengths[index] = cached > split.prefix_keys ? cached - split.prefix_keys : 0;
  }
  // Of the first sequence with new tokens: nothing is known of the pages of the others.
  if (index < split.prefix_pages) {
    const int sequence = split.row_offsets[1] > 0
                             ? 0
                             : sequence_of(split.row_offsets, static_cast<int>(split.batch), 0);
    copy_page(split.keys, sequence, static_cast<int>(index));
    copy_page(split.scales, sequence, static_cast<int>(index));
  }
  if (index == 0) {
    const std::uint32_t tokens = split.row_offsets[split.batch];
    split.prefix_offsets[0] = 0;
    split.prefix_offsets[1] = tokens;
    split.prefix_length[0] = split.prefix_keys - tokens;
  }
}

std::int64_t prefix_keys(const FlashAttentionProblem& problem) {
  return problem.shared_prefix_pages * problem.cache.page_size;
}

// All tokens as one sequence, which sees every key of the prefix.
FlashAttentionProblem prefix_problem(const FlashAttentionProblem& problem) {
  FlashAttentionProblem prefix = problem;
  prefix.shared_prefix_pages = 0;
  prefix.ragged = {.tokens = problem.ragged.tokens,
                   .batch = 1,
                   .max_new_tokens = problem.ragged.tokens,
                   .max_keys = prefix_keys(problem)};
  prefix.cache.max_pages = problem.shared_prefix_pages;
  prefix.mask = {};
  prefix.has_sinks = false;
  prefix.wants_lse = true;
  return prefix;
}

FlashAttentionProblem own_problem(const FlashAttentionProblem& problem) {
  FlashAttentionProblem own = problem;
  own.shared_prefix_pages = 0;
  own.cache.max_pages -= problem.shared_prefix_pages;
  if (own.ragged.max_keys >= 0) own.ragged.max_keys -= prefix_keys(problem);
  own.ragged.total_keys = -1;
  own.wants_lse = true;
  return own;
}

bool is_decoded(const FlashAttentionProblem& part) {
  return refuse_decode(part).empty();
}

std::string_view kernel_of(const FlashAttentionProblem& part) {
  return is_decoded(part) ? "cuda/sm90/decode/flash_attention" : "cuda/sm90/flash_attention";
}

std::string refuse_part(const FlashAttentionProblem& part) {
  return is_decoded(part) ? "" : refuse_tiles(part);
}

KernelPtr<FlashAttentionArgs> prepare_part(const FlashAttentionProblem& part) {
  return is_decoded(part) ? prepare_decode(part) : prepare_tiles(part);
}

// The kernels over the shared pages and over each sequence's own.
struct Parts {
  explicit Parts(const FlashAttentionProblem& problem)
      : prefix(prepare_part(prefix_problem(problem))), own(prepare_part(own_problem(problem))) {}

  KernelPtr<FlashAttentionArgs> prefix;
  KernelPtr<FlashAttentionArgs> own;
};

// The page tables without their first columns.
PagedKVCache without_columns(PagedKVCache cache, std::int64_t count) {
  const auto cut = [&](TensorView& table) {
    table.data =
        static_cast<std::byte*>(table.data) + bytes_for(table.dtype, count * table.strides[1]);
    table.shape[1] -= count;
  };
  cut(cache.page_table);
  if (cache.scales_page_table.has_value()) cut(*cache.scales_page_table);
  return cache;
}

struct CascadeScratch {
  std::uint32_t* prefix_offsets;  // [2]
  std::uint32_t* prefix_length;   // [1]
  std::uint32_t* prefix_pages;    // [shared_prefix_pages], of rows and of scales
  std::uint32_t* prefix_scale_pages;
  std::uint32_t* own_lengths;  // [batch]
  std::byte* states;           // [2, tokens, heads, value_dim], of out's dtype
  float* lses;                 // [2, tokens, heads]
  std::byte* prefix_kernel;    // workspaces of the two
  std::byte* own_kernel;
};

CascadeScratch carve_cascade(Carver& carver, const FlashAttentionProblem& problem,
                             const Parts& parts) {
  const std::int64_t rows = 2 * problem.ragged.tokens * problem.heads;
  return {.prefix_offsets = carver.take<std::uint32_t>(2),
          .prefix_length = carver.take<std::uint32_t>(1),
          .prefix_pages = carver.take<std::uint32_t>(problem.shared_prefix_pages),
          .prefix_scale_pages = carver.take<std::uint32_t>(problem.shared_prefix_pages),
          .own_lengths = carver.take<std::uint32_t>(problem.ragged.batch),
          .states = carver.take<std::byte>(bytes_for(problem.out_dtype, rows * problem.value_dim)),
          .lses = carver.take<float>(rows),
          .prefix_kernel = carver.take<std::byte>(parts.prefix->workspace_bytes()),
          .own_kernel = carver.take<std::byte>(parts.own->workspace_bytes())};
}

class Cascade {
 public:
  Cascade(const FlashAttentionProblem& problem, const Parts& parts, const FlashAttentionArgs& args,
          const Context& context)
      : problem_(problem), parts_(parts), args_(args), context_(context) {
    Carver carver(context.workspace);
    scratch_ = carve_cascade(carver, problem_, parts_);
    const std::int64_t tokens = args.q.shape[0];
    const std::int64_t heads = args.q.shape[1];
    states_ = on_device(scratch_.states, args.out.dtype, {2, tokens, heads, args.out.shape[2]});
    lses_ = on_device(scratch_.lses, DType::f32, {2, tokens, heads});
  }

  void run() const {
    auto* const stream = static_cast<cudaStream_t>(context_.stream);
    const KvLayerView keys = args_.cache.key(args_.layer);
    launch(
        split_batch,
        {.grid = dim3(
             num_blocks(std::max(problem_.ragged.batch, problem_.shared_prefix_pages), kThreads)),
         .block = dim3(kThreads)},
        stream,
        {.row_offsets = args_.row_offsets.as<const std::uint32_t>(),
         .cache_lengths = args_.cache.cache_lengths.as<const std::uint32_t>(),
         .batch = problem_.ragged.batch,
         .prefix_pages = problem_.shared_prefix_pages,
         .prefix_keys = static_cast<std::uint32_t>(prefix_keys(problem_)),
         .prefix_offsets = scratch_.prefix_offsets,
         .prefix_length = scratch_.prefix_length,
         .keys = {.table = PageTable::of_rows(keys), .pages = scratch_.prefix_pages},
         .scales = {.table = PageTable::of_scales(keys),
                    .pages = args_.cache.scales_page_table.has_value() ? scratch_.prefix_scale_pages
                                                                       : nullptr},
         .own_lengths = scratch_.own_lengths});
    Context inner = context_;
    inner.workspace = scratch_.prefix_kernel;
    parts_.prefix->run(prefix_args(), inner);
    inner.workspace = scratch_.own_kernel;
    parts_.own->run(own_args(), inner);
    any::merge_states::merge_states(
        {.states = states_, .lses = lses_, .out = args_.out, .lse = args_.lse}, context_);
  }

 private:
  TensorView on_device(void* data, DType dtype, std::initializer_list<std::int64_t> shape) const {
    return TensorView::contiguous(data, dtype, shape, args_.q.device);
  }
  static TensorView state(const TensorView& states, std::int64_t number) {
    TensorView one = rows_of(states, number, 1);
    --one.rank;
    for (int dim = 0; dim < one.rank; ++dim) {
      one.shape[dim] = states.shape[dim + 1];
      one.strides[dim] = states.strides[dim + 1];
    }
    return one;
  }

  FlashAttentionArgs prefix_args() const {
    FlashAttentionArgs prefix = args_;
    prefix.shared_prefix_pages = 0;
    prefix.row_offsets = on_device(scratch_.prefix_offsets, DType::u32, {2});
    const auto table_of = [&](std::uint32_t* pages) {
      return on_device(pages, DType::u32, {1, problem_.shared_prefix_pages});
    };
    prefix.cache.page_table = table_of(scratch_.prefix_pages);
    if (prefix.cache.scales_page_table.has_value()) {
      prefix.cache.scales_page_table = table_of(scratch_.prefix_scale_pages);
    }
    prefix.cache.cache_lengths = on_device(scratch_.prefix_length, DType::u32, {1});
    prefix.cache.max_seq_length = static_cast<std::uint32_t>(args_.q.shape[0]);
    prefix.cache.max_cache_length = static_cast<std::uint32_t>(prefix_keys(problem_));
    prefix.mask = Mask::full();
    prefix.sinks.reset();
    prefix.out = state(states_, 0);
    prefix.lse = state(lses_, 0);
    return prefix;
  }

  // Every sequence without its first pages: positions and keys move together.
  FlashAttentionArgs own_args() const {
    FlashAttentionArgs own = args_;
    own.shared_prefix_pages = 0;
    own.cache = without_columns(args_.cache, problem_.shared_prefix_pages);
    own.cache.cache_lengths = on_device(scratch_.own_lengths, DType::u32, {problem_.ragged.batch});
    if (own.cache.max_cache_length.has_value()) {
      *own.cache.max_cache_length -= static_cast<std::uint32_t>(prefix_keys(problem_));
    }
    own.out = state(states_, 1);
    own.lse = state(lses_, 1);
    return own;
  }

  const FlashAttentionProblem& problem_;
  const Parts& parts_;
  const FlashAttentionArgs& args_;
  const Context& context_;
  CascadeScratch scratch_{};
  TensorView states_;
  TensorView lses_;
};

std::string refuse_parts(const FlashAttentionProblem& problem) {
  const std::string prefix = refuse_part(prefix_problem(problem));
  if (!prefix.empty()) return "over the shared pages: " + prefix;
  const std::string own = refuse_part(own_problem(problem));
  return own.empty() ? "" : "over the others: " + own;
}

class CascadeKernel final : public Kernel<FlashAttentionArgs> {
 public:
  explicit CascadeKernel(const FlashAttentionProblem& problem)
      : problem_(problem), parts_(problem) {}

  std::int64_t workspace_bytes() const override {
    Carver counter;
    static_cast<void>(carve_cascade(counter, problem_, parts_));
    return counter.bytes();
  }

  Choices choices() const override {
    return {{"prefix", std::string(kernel_of(prefix_problem(problem_)))},
            {"rest", std::string(kernel_of(own_problem(problem_)))}};
  }

  void run(const FlashAttentionArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0) return;
    const DeviceScope scope(args.q.device);
    Cascade(problem_, parts_, args, context).run();
  }

 private:
  FlashAttentionProblem problem_;
  Parts parts_;
};

}  // namespace

std::string refuse_cascade(const FlashAttentionProblem& problem) {
  if (problem.shared_prefix_pages == 0) return "no shared pages";
  std::string elsewhere = refuse_unless_sm90(problem.device);
  if (!elsewhere.empty()) return elsewhere;
  if (problem.max_key_blocks > 0) return "key_blocks, in which the shared pages need not stand";
  if (problem.has_key_lengths) return "key_lengths, which may end within the shared pages";
  if (problem.batch_invariant) return "batch_invariant: what is shared depends on the batch";
  if (problem.ragged.batch < 2) return "one sequence shares with nobody";
  if (!problem.mask.is_causal_or_full()) {
    return "a mask that may hide shared keys";
  }
  if (problem.has_alibi) return "ALiBi, which asks for each query's position";
  if (problem.ragged.tokens > prefix_keys(problem)) return "more new tokens than shared keys";
  return refuse_parts(problem);
}

KernelPtr<FlashAttentionArgs> prepare_cascade(const FlashAttentionProblem& problem) {
  return std::make_unique<const CascadeKernel>(problem);
}

}  // namespace quire::cuda::sm90::flash_attention
