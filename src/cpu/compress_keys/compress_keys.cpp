// SPDX-License-Identifier: Apache-2.0
#include "cpu/compress_keys/compress_keys.h"

#include <algorithm>
#include <vector>

#include "cpu/attention/work_list.h"
#include "cpu/compress_keys/kernels.h"
#include "cpu/rows/row_blocks.h"
#include "cpu/runtime/row_encoding.h"
#include "cpu/runtime/work_estimate.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {
namespace {

RowsOf rows_of(const TensorView& matrix) {
  return {.data = matrix.as<const std::byte>(),
          .dtype = matrix.dtype,
          .stride = bytes_for(matrix.dtype, matrix.strides[0])};
}

CompressJob job_of(const CompressKeysArgs& args, const RowPlan& plan) {
  const TensorView& state = args.state;
  const auto stride = [&](std::size_t dim) { return bytes_for(state.dtype, state.strides[dim]); };
  return {
      .width = plan.width,
      .series = args.kv.shape[1] / plan.width,
      .ratio = args.bias.shape[0],
      .rope = args.freqs_cis.shape[1],
      .kv = rows_of(args.kv),
      .gate = rows_of(args.gate),
      .bias = rows_of(args.bias),
      .gamma = {.data = args.gamma.as<const std::byte>(), .dtype = args.gamma.dtype, .stride = 0},
      .freqs = rows_of(args.freqs_cis),
      .epsilon = args.epsilon,
      .state = state.as<std::byte>(),
      .state_dtype = state.dtype,
      .state_rows = state.shape[1],
      .slot_stride = stride(0),
      .state_row_stride = stride(1),
      .part_stride = stride(2),
      .plan = plan};
}

// Rows that are whole now, and what each sequence keeps. The former read what the latter overwrite.
struct Work {
  std::vector<CompressItem> rows{};
  std::vector<CompressItem> kept{};
};

Work list_work(const CompressKeysArgs& args, const CompressJob& job, const PagedKvOperand& rows) {
  Work work;
  const std::vector<SequenceSpan> sequences = sequence_spans(args.row_offsets, args.cache);
  for (std::int64_t b = 0; b < std::ssize(sequences); ++b) {
    const SequenceSpan& sequence = sequences[static_cast<std::size_t>(b)];
    if (sequence.num_tokens == 0) continue;
    CompressItem item{.first_token = sequence.first_token,
                      .cached = sequence.cache_length,
                      .slot = args.state_slots ? args.state_slots->as<const std::uint32_t>()[b] : b,
                      .begin = 0,
                      .end = sequence.num_keys(),
                      .row = {}};
    for (std::int64_t row = item.cached / job.ratio; row < item.end / job.ratio; ++row) {
      rows.locate(b, 0, row, 1, &item.row);
      item.begin = row;
      if (item.row.row != nullptr) work.rows.push_back(item);
    }
    item.begin = std::max(item.cached, item.end - job.state_rows);
    work.kept.push_back(item);
  }
  return work;
}

}  // namespace

void compress_keys(const CompressKeysArgs& args, const Context& context, Target target) {
  const PagedKvOperand rows(args.cache.key(args.layer));
  const RowEncoding encoding(rows.layout());
  const CompressJob job = job_of(args, encoding.plan());
  const Work work = list_work(args, job, rows);
  const CompressKernels& kernels = compress_kernels(target);
  // Of kv and gate; a weight's exponential takes about as long as its numbers.
  const auto token_bytes =
      static_cast<double>(4 * bytes_for(args.kv.dtype, job.series * job.width));
  const auto workers_for = [&](std::int64_t tokens) {
    return Workers(context).for_nanoseconds(
        nanoseconds_of_bytes(static_cast<double>(tokens) * token_bytes));
  };
  const WorkerScratch scratch(kernels.scratch_bytes(job), context);
  parallel_for(std::ssize(work.rows), workers_for(std::ssize(work.rows) * job.ratio),
               [&](std::int64_t item, int worker) {
                 kernels.pool(job, work.rows[static_cast<std::size_t>(item)], scratch.of(worker));
               });
  parallel_for(std::ssize(work.kept), workers_for(std::ssize(work.kept) * job.state_rows),
               [&](std::int64_t item, int) {
                 kernels.keep(job, work.kept[static_cast<std::size_t>(item)]);
               });
}

}  // namespace quire::cpu
