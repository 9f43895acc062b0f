// SPDX-License-Identifier: Apache-2.0
#include "cpu/fused_qkv_matmul/fused_qkv_matmul.h"

#include <algorithm>
#include <vector>

#include "cpu/fused_qkv_matmul/kernels.h"
#include "cpu/fused_qkv_matmul/operands.h"
#include "cpu/fused_qkv_matmul/pack_weight.h"
#include "cpu/rows/conversion_kernels.h"
#include "cpu/runtime/row_encoding.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/work_estimate.h"
#include "quire/paged_kv_operand.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kTokenBlock = 512;
constexpr std::int64_t kMostColumns = 256;  // of a range: its sums share L2 with a block of X
constexpr std::int64_t kLeastColumns = 64;
constexpr std::int64_t kInputScaleBlock = 128;

// The rows that the new tokens have in an operand, and the plan of a row.
struct Destination {
  Destination(const KvOperandRef& operand, const TensorView& row_offsets, std::int64_t tokens)
      : encoding(operand.layout()), heads(operand.heads()), rows(static_cast<std::size_t>(tokens)) {
    const auto* offsets = row_offsets.as<const std::uint32_t>();
    for (std::int64_t sequence = 0; sequence + 1 < row_offsets.shape[0]; ++sequence) {
      const std::int64_t first = offsets[sequence];
      const std::int64_t count = offsets[sequence + 1] - first;
      operand.locate(sequence, 0, operand.num_keys(sequence, count) - count, count,
                     rows.data() + first);
    }
  }

  CacheBand band(std::int64_t first_column) const {
    return {
        .first_column = first_column, .plan = encoding.plan(), .heads = heads, .rows = rows.data()};
  }

  RowEncoding encoding;
  KvHeads heads;
  std::vector<RowAddress> rows;
};

struct Range {
  std::int64_t first;
  std::int64_t last;
};

std::int64_t num_cuts(std::int64_t columns, std::int64_t step) {
  return (columns + step - 1) / step;
}

void cut(std::int64_t first, std::int64_t last, std::int64_t step, std::vector<Range>& ranges) {
  for (std::int64_t n = first; n < last; n += step) ranges.push_back({n, std::min(n + step, last)});
}

// Column ranges that never cut a cache row, a few for each thread.
std::vector<Range> column_ranges(const MatmulJob& job, int num_threads) {
  const std::int64_t share = job.weight.rows / (4 * num_threads);
  const std::int64_t wanted =
      std::clamp(share / kLeastColumns * kLeastColumns, kLeastColumns, kMostColumns);
  std::vector<Range> ranges;
  ranges.reserve(static_cast<std::size_t>(num_cuts(job.q_dim, wanted)));
  cut(0, job.q_dim, wanted, ranges);
  if (job.num_bands == 0) return ranges;  // the last one may be narrower than the others
  for (int b = 0; b < job.num_bands; ++b) {
    const std::int64_t width = job.bands[b].plan.width;
    const std::int64_t first = job.bands[b].first_column;
    const std::int64_t heads = std::max<std::int64_t>(1, wanted / width);
    cut(first, first + job.bands[b].heads.count * width, heads * width, ranges);
  }
  // Items are handed out in order: the widest first.
  std::ranges::stable_sort(ranges, std::ranges::greater{},
                           [](const Range& range) { return range.last - range.first; });
  return ranges;
}

// As f32: the tensor's own numbers, or `storage` filled with them.
const float* load_bias(const std::optional<TensorView>& bias, Target target,
                       std::vector<float>& storage) {
  if (!bias.has_value()) return nullptr;
  if (bias->dtype == DType::f32) return bias->as<const float>();
  storage.resize(static_cast<std::size_t>(bias->shape[0]));
  conversion_kernels(target).widen(bias->dtype, bias->as<const std::byte>(), bias->shape[0],
                                   storage.data());
  return storage.data();
}

// Columns of K, then of V, behind those of `out`. Rows and plans stand in `destinations`.
void add_cache(const Projection& args, std::vector<Destination>& destinations, MatmulJob& job) {
  job.num_bands = args.cache->is_mla() ? 1 : 2;
  destinations.reserve(static_cast<std::size_t>(job.num_bands));
  std::int64_t column = job.q_dim;
  for (int b = 0; b < job.num_bands; ++b) {
    const PagedKvOperand operand(b == 0 ? args.cache->key(args.layer)
                                        : args.cache->value(args.layer));
    const Destination& destination =
        destinations.emplace_back(operand, *args.row_offsets, job.tokens);
    job.bands[b] = destination.band(column);
    column += destination.heads.count * job.bands[b].plan.width;
  }
}

// A block's panels fit into the L1 cache: of f32 into half of 32 KiB, beside those of X.
std::int64_t depth_block_of(const MatmulJob& job, const MatmulEngine& engine) {
  constexpr std::int64_t kF32Panel = 4096;  // numbers; sums do not depend on it
  constexpr std::int64_t kMost = 256;
  if (engine.element_bytes != 4) return 512;
  const bool has_long_blocks = job.weight.block != nullptr && job.weight.block->columns == kMost;
  return has_long_blocks ? kMost : std::min(kMost, kF32Panel / engine.cols);
}

// Where scales change along the depth, they are applied group by group, and so are mins.
void set_depth_block(MatmulJob& job, const MatmulEngine& engine) {
  job.scaling = Scaling::at_end;
  job.group = job.weight.columns;
  job.depth_block = depth_block_of(job, engine);
  if (!engine.takes_numbers) return;
  const bool input_changes = job.x.has_block_scales();
  const bool weight_changes = job.weight.group < job.weight.columns || job.weight.has_mins();
  if (!weight_changes && !input_changes) return;
  job.scaling = Scaling::per_group;
  job.group = input_changes ? std::min(job.weight.group, kInputScaleBlock) : job.weight.group;
}

// Packed codes whose groups are whole in a depth block.
bool fit_widened_engine(const MatmulJob& job, const MatmulEngine& widened) {
  const WeightView& weight = job.weight;
  if (!weight.is_packed() || weight.packed.bits >= 16) return false;
  return weight.group == weight.columns || depth_block_of(job, widened) % weight.group == 0;
}

const MatmulEngine& choose_engine(Activations activations, const MatmulJob& job,
                                  const MatmulKernels& kernels) {
  if (activations == Activations::int8) {
    return job.tokens < kernels.int8_many_from ? kernels.int8 : kernels.int8_many;
  }
  const bool is_plain =
      job.x.dtype == DType::bf16 && job.x.scale == nullptr && job.weight.codes == Codes::bf16;
  if (is_plain && job.tokens >= kernels.bf16_widened_from) return kernels.f32;
  if (!fit_bf16_engine(job.x, job.weight)) return kernels.f32;
  const bool is_widened =
      job.tokens >= kernels.widened_from && fit_widened_engine(job, kernels.widened);
  return is_widened ? kernels.widened : kernels.bf16;
}

// Of the job on one thread. Weights that are not as the engine multiplies them are decoded once.
double nanoseconds_of(const MatmulJob& job, const MatmulEngine& engine, Target target) {
  const auto numbers = static_cast<double>(job.weight.rows * job.weight.columns);
  const DType dtype = engine.element_bytes == 4 ? DType::f32 : DType::bf16;
  return nanoseconds_of_bytes(numbers * 2.0) +
         numbers * static_cast<double>(job.tokens) / products_per_nanosecond(target, dtype);
}

void run_job(MatmulJob& job, const MatmulEngine& engine, const Context& context, Target target) {
  const Workers workers = Workers(context).for_nanoseconds(nanoseconds_of(job, engine, target));
  const std::vector<Range> ranges = column_ranges(job, workers.count);
  const std::int64_t widest = ranges.front().last - ranges.front().first;
  constexpr std::int64_t kPage = 4096;  // workers' scratch does not share pages
  const std::int64_t per_worker = (engine.scratch_bytes(job, widest) + kPage - 1) / kPage * kPage;
  const std::int64_t packed = (engine.packed_x_bytes(job) + kPage - 1) / kPage * kPage;
  job.packed_x = thread_scratch(packed + workers.count * per_worker);
  std::byte* scratch = job.packed_x + packed;

  const std::int64_t panels = (job.tokens + engine.rows - 1) / engine.rows;
  const auto x_bytes = static_cast<double>(job.tokens * job.weight.columns) * 4.0;
  parallel_for(panels, workers.for_nanoseconds(nanoseconds_of_bytes(x_bytes)),
               [&](std::int64_t panel, int worker) {
                 engine.pack_x(job, panel, scratch + worker * per_worker);
               });
  parallel_for(static_cast<std::int64_t>(ranges.size()), workers,
               [&](std::int64_t item, int worker) {
                 const Range& range = ranges[static_cast<std::size_t>(item)];
                 engine.run(job, range.first, range.last, scratch + worker * per_worker);
               });
}

}  // namespace

std::string refuse(const FusedQkvProblem& problem, Target target) {
  std::string reason = why_not(target);
  if (!reason.empty()) return reason;
  const bool is_f32 =
      problem.weight_format == WeightFormat::dense && problem.weight_dtype == DType::f32;
  if (problem.activations == Activations::int8 && problem.weight_packing == WeightPacking::none) {
    return "int8 activations are multiplied with packed weights only (pack_weight)";
  }
  return refuse_packing(problem.weight_packing, is_f32, target);
}

void project(const Projection& args, const Context& context, Target target) {
  MatmulJob job{};
  job.x = input_view(args);
  job.weight = weight_view(args.weight);
  job.tokens = args.x.shape[0];
  if (job.tokens == 0 || job.weight.rows == 0) return;
  std::vector<float> bias;
  job.bias = load_bias(args.bias, target, bias);
  job.out = args.out.as<std::byte>();
  job.out_dtype = args.out.dtype;
  job.out_stride = bytes_for(args.out.dtype, args.out.strides[0]);
  job.q_dim = args.out.shape[1];
  std::vector<Destination> destinations;
  if (args.cache != nullptr) add_cache(args, destinations, job);

  const MatmulKernels& kernels = matmul_kernels(target);
  const MatmulEngine& engine = choose_engine(args.activations, job, kernels);
  set_depth_block(job, engine);
  job.token_block = kTokenBlock / engine.rows * engine.rows;
  run_job(job, engine, context, target);
}

}  // namespace quire::cpu
