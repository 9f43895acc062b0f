// SPDX-License-Identifier: Apache-2.0
#include "cpu/store/store.h"

#include <vector>

#include "cpu/rows/new_tokens.h"
#include "cpu/runtime/row_encoding.h"
#include "cpu/store/kernels.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {
namespace {

PagedKvOperand layer_of(const PagedKVCache& cache, std::int64_t layer, KvSide side) {
  return PagedKvOperand(side == KvSide::key ? cache.key(layer) : cache.value(layer));
}

// Heads without scales that follow each other on both sides are one long row.
void join_heads(StoreJob& job, RowRun& run, std::int64_t row_bytes) {
  const RowPlan& plan = job.plan;
  const bool follow =
      job.x_head_stride == bytes_for(job.x_dtype, plan.width) && job.row_head_stride == row_bytes;
  if (plan.num_runs != 1 || plan.num_granules != 0 || !follow) return;
  run = plan.runs[0];
  if (run.count != plan.width || bytes_for(run.dtype, run.count) != job.row_head_stride) return;
  run.count *= static_cast<std::int32_t>(job.num_heads);
  job.plan.runs = &run;
  job.plan.width = run.count;
  job.num_heads = 1;
}

// Slots that a column of the plane belongs to, in order, each once.
std::vector<std::int32_t> slots_of(const RowFormat& format) {
  std::vector<std::int32_t> slots;
  std::int32_t column = 0;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[static_cast<std::size_t>(p)];
    const std::int32_t end = column + part.width;
    for (; part.scale_source == ScaleSource::plane && column < end; ++column) {
      slots.push_back(column / part.granularity);
    }
    column = end;
  }
  std::ranges::sort(slots);
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

}  // namespace

void store(const StoreArgs& args, const Context& context, Target target) {
  const PagedKvOperand rows = layer_of(args.cache, args.layer, args.side);
  const RowLayout layout = rows.layout();
  const KvHeads heads = rows.heads();
  const RowEncoding encoding(layout);
  StoreJob job{
      .x = args.x.as<const std::byte>(),
      .x_dtype = args.x.dtype,
      .x_token_stride = bytes_for(args.x.dtype, args.x.strides[0]),
      .x_head_stride = bytes_for(args.x.dtype, args.x.strides[1]),
      .num_heads = heads.count,
      .plan = encoding.plan(),
      .row_head_stride = heads.row_stride_bytes,
      .plane_head_stride = heads.plane_stride_bytes,
      .holds_codes = layout.format.is_uniform() && args.x.dtype == layout.format.parts[0].dtype};
  RowRun joined{};
  join_heads(job, joined, layout.format.row_bytes);
  const std::int64_t row_bytes = layout.format.row_bytes + bytes_for(args.x.dtype, layout.width());
  const WorkerScratch scratch(job.plan.num_granules * std::int64_t{sizeof(double)}, context);
  const StoreKernels& kernels = store_kernels(target);
  for_token_blocks(NewTokens(args.row_offsets, rows), heads.count * row_bytes, context,
                   [&](std::span<const TokenPlace> places, int worker) {
                     kernels.store(job, places.data(), static_cast<std::int64_t>(places.size()),
                                   reinterpret_cast<double*>(scratch.of(worker)));
                   });
}

void store_scales(const StoreScalesArgs& args, const Context& context, Target target) {
  const PagedKvOperand rows = layer_of(args.cache, args.layer, args.side);
  const RowLayout layout = rows.layout();
  const KvHeads heads = rows.heads();
  const std::vector<std::int32_t> slots = slots_of(layout.format);
  const StoreScalesJob job{
      .scales = args.scales.as<const std::byte>(),
      .dtype = args.scales.dtype,
      .token_stride = bytes_for(args.scales.dtype, args.scales.strides[0]),
      .head_stride = bytes_for(args.scales.dtype, args.scales.strides[1]),
      .slot_stride = bytes_for(args.scales.dtype, args.scales.strides[2]),
      .num_heads = heads.count,
      .slots = slots.data(),
      .num_slots = static_cast<std::int64_t>(slots.size()),
      .plane_dtype = layout.plane.dtype,
      .plane_head_stride = heads.plane_stride_bytes,
      .plane_slot_stride = bytes_for(layout.plane.dtype, layout.plane.slot_stride)};
  const StoreKernels& kernels = store_kernels(target);
  for_token_blocks(NewTokens(args.row_offsets, rows), heads.count * job.num_slots * 8, context,
                   [&](std::span<const TokenPlace> places, int) {
                     kernels.store_scales(job, places.data(),
                                          static_cast<std::int64_t>(places.size()));
                   });
}

}  // namespace quire::cpu
