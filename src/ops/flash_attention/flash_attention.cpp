// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cpu/flash_attention/flash_attention.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/attention_check.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/flash_attention/key_blocks.h"
#include "ops/flash_attention/ragged_keys.h"
#include "ops/memory_span.h"
#include "quire/ops/flash_attention.h"
#include "reference/flash_attention.h"

namespace quire {
namespace {

using ops::Arguments;

// Of every row of K and V.
std::int64_t key_alignment(const FlashAttentionArgs& args) {
  if (!ops::has_ragged_keys(args)) return ops::cache_alignment(args.cache);
  return std::min(ops::row_alignment(*args.k), ops::row_alignment(*args.v));
}

void check_heads(const Arguments& check, const TensorView& q, const ops::PagedBatch& batch,
                 const char* keys) {
  if (q.shape[1] % batch.cache.num_kv_heads != 0) {
    check.fail("q", fmt::format("with a multiple of {} heads", batch.cache.num_kv_heads),
               q.describe());
  }
  if (q.shape[2] != batch.head_dim()) {
    check.fail("q", fmt::format("{} wide like {}", batch.head_dim(), keys), q.describe());
  }
}

bool has_head_scales(const PagedKVCache& cache) {
  if (!cache.scales.has_value() || cache.scales_page_table.has_value()) return false;
  const TensorView& scales = *cache.scales;
  const RowFormat format = cache.format();
  return format.is_uniform() && format.parts[0].scale_source == ScaleSource::plane &&
         scales.dtype == DType::f32 && scales.strides[0] == 0 && scales.strides[3] == 0 &&
         scales.shape[5] == 1;
}

// Where the values are on the host: all sequences with new tokens begin with the same pages.
void check_shared_pages(const Arguments& check, const FlashAttentionArgs& args) {
  const std::int64_t shared = args.shared_prefix_pages;
  check.is_at_least("shared_prefix_pages", shared, 0);
  if (shared > args.cache.max_pages()) {
    check.fail("shared_prefix_pages", fmt::format("at most {}", args.cache.max_pages()),
               std::to_string(shared));
  }
  const std::int64_t shared_keys = shared * args.cache.page_size();
  const std::optional<std::uint32_t>& most_keys = args.cache.max_cache_length;
  if (args.q.shape[0] > 0 && most_keys.has_value() && *most_keys < shared_keys) {
    check.fail("shared_prefix_pages",
               fmt::format("within the {} keys of cache.max_cache_length", *most_keys),
               fmt::format("{} pages of {}", shared, args.cache.page_size()));
  }
  if (shared == 0 || !ops::is_on_host(args.row_offsets)) return;
  const PageCursor pages = args.cache.pages();
  std::int64_t first = -1;
  for (std::int64_t sequence = 0; sequence < args.cache.batch(); ++sequence) {
    if (ops::num_new_tokens(args.row_offsets, sequence) == 0) continue;
    if (first < 0) first = sequence;
    const std::int64_t cached = args.cache.cache_length(sequence);
    if (cached < shared_keys) {
      check.fail("shared_prefix_pages",
                 fmt::format("within the {} cached tokens of sequence {}", cached, sequence),
                 fmt::format("{} pages of {}", shared, args.cache.page_size()));
    }
    for (std::int64_t column = 0; column < shared; ++column) {
      const std::uint32_t page = pages.id(sequence, column);
      const std::uint32_t expected = pages.id(first, column);
      if (page == expected) continue;
      check.fail(
          "shared_prefix_pages",
          fmt::format("of pages that all sequences share: {} in column {}, as in sequence {}",
                      expected, column, first),
          fmt::format("{} in sequence {}", page, sequence));
    }
  }
}

ops::PagedBatch check_paged_keys(Arguments& check, const FlashAttentionArgs& args) {
  const ops::CacheUse use{.layer = args.layer,
                          .sides = ops::CacheSides::all,
                          .takes_value_width = true,
                          .key_lengths = args.key_lengths ? &*args.key_lengths : nullptr};
  const ops::PagedBatch batch =
      ops::check_batch(check, args.cache, use, args.row_offsets, args.q.shape[0]);
  check_shared_pages(check, args);
  return batch;
}

const ops::Dispatch<FlashAttentionProblem, FlashAttentionArgs>& dispatch() {
  static const ops::Dispatch<FlashAttentionProblem, FlashAttentionArgs> table(
      "flash_attention",
      {
          .cuda = cuda::flash_attention_kernels(),
          .refuse_on_cpu = cpu::refuse_flash_attention,
          .run_on_cpu = cpu::flash_attention,
          .run_reference = [](const FlashAttentionArgs& args) { reference::flash_attention(args); },
      });
  return table;
}

}  // namespace

FlashAttentionProblem validate(const FlashAttentionArgs& args) {
  Arguments check("flash_attention");
  check.tensor("q", args.q)
      .is(ops::kActivations, {"tokens", "heads", "head_dim"})
      .has_full_rows()
      .has_dense_rows();
  const bool is_ragged = ops::has_ragged_keys(args);
  const ops::PagedBatch batch =
      is_ragged ? ops::check_ragged_keys(check, args) : check_paged_keys(check, args);
  check_heads(check, args.q, batch, is_ragged ? "k" : "the cache");
  ops::check_key_blocks(check, args, batch.cache.num_kv_heads);
  if (args.scale.has_value()) check.is_finite("scale", *args.scale);
  ops::check_mask(check, args.mask, batch.ragged);
  ops::check_softcap(check, args.softcap);
  ops::check_per_head(check, "alibi_slopes", args.alibi_slopes, args.q.shape[1]);
  ops::check_per_head(check, "sinks", args.sinks, args.q.shape[1]);
  ops::check_attention_out(check, args.out, args.q, "value_dim");
  ops::check_value_columns(check, args.out,
                           is_ragged ? args.v->shape[2] : args.cache.value_format().width(),
                           is_ragged ? "v" : "the cache");
  ops::check_lse(check, args.lse, args.q.shape[0], args.q.shape[1]);
  check.is_at_least("max_workspace_bytes", args.max_workspace_bytes, 0);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .has_head_scales = !is_ragged && has_head_scales(args.cache),
          .heads = args.q.shape[1],
          .head_dim = args.q.shape[2],
          .value_dim = args.out.shape[2],
          .q_dtype = args.q.dtype,
          .out_dtype = args.out.dtype,
          .mask = args.mask.summary(),
          .scale = args.scale.value_or(1.0),
          .has_softcap = args.softcap > 0.0,
          .has_alibi = args.alibi_slopes.has_value(),
          .has_sinks = args.sinks.has_value(),
          .wants_lse = args.lse.has_value(),
          .batch_invariant = args.batch_invariant,
          .allow_fp8_products = args.allow_fp8_products,
          .shared_prefix_pages = args.shared_prefix_pages,
          .max_workspace_bytes = args.max_workspace_bytes,
          .has_key_lengths = args.key_lengths.has_value(),
          .has_ragged_keys = is_ragged,
          .max_key_blocks = args.key_blocks ? args.key_blocks->shape[2] : 0,
          .key_block_size = args.key_blocks ? args.key_block_size : 0,
          .alignment = std::min(
              {ops::row_alignment(args.q), ops::row_alignment(args.out), key_alignment(args)})};
}

Prepared<FlashAttentionProblem> prepare(const FlashAttentionProblem& problem,
                                        const Context& context) {
  return dispatch().prepare("flash_attention", problem, context);
}

Plan plan(const FlashAttentionProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const FlashAttentionArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<FlashAttentionProblem>& prepared, const FlashAttentionArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void flash_attention(const FlashAttentionArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
