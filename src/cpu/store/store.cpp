// SPDX-License-Identifier: Apache-2.0
#include "cpu/store/store.h"

#include <algorithm>
#include <array>
#include <vector>

#include "cpu/rows/new_tokens.h"
#include "cpu/runtime/row_encoding.h"
#include "cpu/store/kernels.h"
#include "quire/paged_kv_operand.h"
#include "quire/slotted_kv_operand.h"

namespace quire::cpu {
namespace {

KvLayerView layer_of(const PagedKVCache& cache, std::int64_t layer, KvSide side) {
  return side == KvSide::key ? cache.key(layer) : cache.value(layer);
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

// What is stored at one side of the layer. It stays where it is: the job has addresses of it.
class StoreSide {
 public:
  StoreSide(const KvOperandRef& rows, const TensorView& row_offsets, const TensorView& x)
      : tokens_(row_offsets, rows),
        encoding_(rows.layout()),
        token_bytes_(rows.heads().count *
                     (rows.layout().format.row_bytes + bytes_for(x.dtype, rows.layout().width()))) {
    const RowFormat& format = rows.layout().format;
    job_ = {.x = x.as<const std::byte>(),
            .x_dtype = x.dtype,
            .x_token_stride = bytes_for(x.dtype, x.strides[0]),
            .x_head_stride = bytes_for(x.dtype, x.strides[1]),
            .num_heads = rows.heads().count,
            .plan = encoding_.plan(),
            .row_head_stride = rows.heads().row_stride_bytes,
            .plane_head_stride = rows.heads().plane_stride_bytes,
            .holds_codes = format.is_uniform() && x.dtype == format.parts[0].dtype};
    join_heads(job_, joined_, format.row_bytes);
  }
  StoreSide(const StoreSide&) = delete;

  const NewTokens& tokens() const { return tokens_; }
  const StoreJob& job() const { return job_; }
  std::int64_t token_bytes() const { return token_bytes_; }

 private:
  NewTokens tokens_;
  RowEncoding encoding_;
  RowRun joined_{};
  StoreJob job_{};
  std::int64_t token_bytes_;
};

// Blocks of tokens, and in each of them one side after the other: a batch is shared out once.
void store_sides(std::span<const StoreSide* const> sides, const Context& context, Target target) {
  std::int64_t granules = 0;
  std::int64_t token_bytes = 0;
  for (const StoreSide* side : sides) {
    granules = std::max<std::int64_t>(granules, side->job().plan.num_granules);
    token_bytes += side->token_bytes();
  }
  const WorkerScratch scratch(granules * std::int64_t{sizeof(double)}, context);
  const StoreKernels& kernels = store_kernels(target);
  for_row_blocks(sides[0]->tokens().count(), token_bytes, context, [&](RowBlock block, int worker) {
    TokenPlace places[kMostRowsInBlock];
    const std::span span(places, static_cast<std::size_t>(block.last - block.first));
    for (const StoreSide* side : sides) {
      side->tokens().locate(block.first, span);
      kernels.store(side->job(), places, block.last - block.first,
                    reinterpret_cast<double*>(scratch.of(worker)));
    }
  });
}

template <typename MakeRows>
void store_with(const StoreArgs& args, const TensorView& row_offsets, MakeRows make_rows,
                const Context& context, Target target) {
  const auto rows = make_rows(layer_of(args.cache, args.layer, args.side));
  const StoreSide side(rows, row_offsets, args.x);
  if (!args.value.has_value()) return store_sides(std::array{&side}, context, target);
  const auto value_rows = make_rows(args.cache.value(args.layer));
  const StoreSide value(value_rows, row_offsets, *args.value);
  store_sides(std::array{&side, &value}, context, target);
}

}  // namespace

void store(const StoreArgs& args, const Context& context, Target target) {
  if (!args.slots.has_value()) {
    const auto paged = [](const KvLayerView& view) { return PagedKvOperand(view); };
    return store_with(args, args.row_offsets, paged, context, target);
  }
  std::array<std::uint32_t, 2> one_sequence{0, static_cast<std::uint32_t>(args.x.shape[0])};
  const auto slotted = [&](const KvLayerView& view) { return SlottedKvOperand(view, *args.slots); };
  store_with(args, TensorView::contiguous(one_sequence.data(), DType::u32, {2}), slotted, context,
             target);
}

void store_scales(const StoreScalesArgs& args, const Context& context, Target target) {
  const PagedKvOperand rows(layer_of(args.cache, args.layer, args.side));
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
